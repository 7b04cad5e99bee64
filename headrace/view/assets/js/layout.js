// The layout's worker. A page around this one may forbid workers (a notebook in an editor); then the layout runs in the
// thread of the page, where it delays the pointer.

class Layout {
  /** `answered` receives { id, boxes, lines } or { id, error }. */
  constructor(answered) {
    this.answered = answered;
    this.last = null; // the question that has no answer yet
    this.works = false; // whether the worker has answered
    const text = byId("worker").textContent;
    try {
      this.worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    } catch {
      this.moveIntoPage(text);
      return;
    }
    this.worker.onmessage = (event) => {
      this.works = true;
      this.last = null;
      answered(event.data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      if (this.works) showError(`the layout failed: ${event.message}`);
      else this.moveIntoPage(text);
    };
  }

  moveIntoPage(text) {
    this.worker = null;
    if (!self.layOutInPage) document.head.append(el("script", {}, text));
    if (this.last) this.ask(this.last);
  }

  ask(problem) {
    this.last = problem;
    if (this.worker) this.worker.postMessage(problem);
    else setTimeout(() => this.answered(self.layOutInPage(problem)));
  }
}
