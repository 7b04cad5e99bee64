"""The estimator: trains, evaluates and predicts with the model that a function builds.

Each call builds a graph of its own by `input_fn` and `model_fn`, and runs it in a monitored session with checkpoints in
`model_dir`. The folder is the only state: `train` continues from its newest checkpoint, and `evaluate` and `predict`
read it.
"""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headrace.errors import NotFoundError
from headrace.interchange import saved_model
from headrace.train import hooks as hooks_
from headrace.v1 import array_ops, checkpoints, metrics, monitored, summary
from headrace.v1.estimator import evaluation, functions
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.estimator.run_config import RunConfig
from headrace.v1.estimator.spec import LOSS, EstimatorSpec
from headrace.v1.global_step import assert_global_step, create_global_step, get_global_step
from headrace.v1.graph import Graph, GraphKeys, add_to_collection, get_collection, set_random_seed
from headrace.v1.logging import info, warn
from headrace.v1.saver import Saver
from headrace.v1.scoping import device
from headrace.v1.session import Session
from headrace.v1.warm_starting import WarmStartSettings, warm_start

_STEP = GraphKeys.GLOBAL_STEP


class Estimator:
    """Model that a function builds, with training, evaluation and prediction.

    Args:
      model_fn: function that builds the model, as `model_fn(features, labels, mode, params, config)`, of which it may
        leave out all but `features`. It returns an `EstimatorSpec`.
      model_dir: folder of checkpoints and summaries. None: that of `config`, else a temporary folder.
      config: a `RunConfig`. None: `RunConfig()`.
      params: hyperparameters for `model_fn`.
      warm_start_from: a checkpoint (its prefix or folder), a SavedModel or `WarmStartSettings`, with initial values.

    Raises:
      ValueError: `model_fn` takes other arguments, `config` is no `RunConfig`, or it has another `model_dir`.

    Source: TensorFlow 1's `tf.estimator.Estimator`.

    Example:
      >>> import headrace.v1 as tf
      >>> import tempfile
      >>> def model_fn(features, labels, mode):
      ...     w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
      ...     loss = tf.losses.mean_squared_error(labels, features * w)
      ...     step = tf.train.GradientDescentOptimizer(0.5).minimize(loss, tf.train.get_or_create_global_step())
      ...     return tf.estimator.EstimatorSpec(mode, features * w, loss, step)
      >>> def input_fn():
      ...     return tf.data.Dataset.from_tensors(([1.0, -1.0], [3.0, -3.0])).repeat()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     estimator = tf.estimator.Estimator(model_fn, folder).train(input_fn, steps=20)
      ...     estimator.get_variable_value("w"), estimator.evaluate(input_fn, steps=1)
      (np.float32(3.0), {'loss': np.float32(0.0), 'global_step': np.int64(20)})
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        if config is not None and not isinstance(config, RunConfig):
            raise ValueError(f"config must be an instance of `RunConfig`, received {config}.")
        functions.check_model_fn(model_fn, params)
        given = None if model_dir is None else os.fspath(model_dir)
        config = RunConfig() if config is None else copy.deepcopy(config)
        if given is not None and config.model_dir is not None and given != config.model_dir:
            raise ValueError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
                f"'{given}', in `RunConfig`: '{config.model_dir}' "
            )
        folder = given or config.model_dir
        if folder is None:
            folder = tempfile.mkdtemp()
            warn("Using temporary folder as model directory: %s", folder)
        self._model_dir: str = folder
        self._config = config.replace(model_dir=folder)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params if params is not None else {})
        if warm_start_from is not None and not isinstance(warm_start_from, WarmStartSettings):
            if not isinstance(warm_start_from, (str, bytes, os.PathLike)):
                raise ValueError(
                    "warm_start_from must be a string or a WarmStartSettings, instead got "
                    f"{type(warm_start_from).__name__}"
                )
            warm_start_from = WarmStartSettings(_checkpoint_of(os.fsdecode(warm_start_from)))
        self._warm_start_from = warm_start_from

    # *** settings and variables ***

    @property
    def model_dir(self) -> str:
        """Folder of checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """Copy of the settings."""
        return copy.deepcopy(self._config)

    @property
    def params(self) -> Any:
        """Copy of the hyperparameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """Function of features, labels, mode and config that builds the model."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def get_variable_value(self, name: str) -> Any:
        """Returns the value of a variable in the newest checkpoint.

        Args:
          name: the name of the variable.

        Raises:
          ValueError: the model is not trained.
        """
        self._check_trained()
        return checkpoints.load_variable(self._model_dir, name)

    def get_variable_names(self) -> list[str]:
        """Returns the names of the variables in the newest checkpoint.

        Raises:
          ValueError: the model is not trained.
        """
        self._check_trained()
        return [name for name, _ in checkpoints.list_variables(self._model_dir)]

    def latest_checkpoint(self) -> str | None:
        """Returns the prefix of the newest checkpoint, or None."""
        return checkpoints.latest_checkpoint(self._model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the folder of the summaries of evaluations.

        Args:
          name: name of the evaluation.
        """
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def _check_trained(self) -> None:
        if not self.latest_checkpoint():
            raise ValueError(f"Couldn't find trained model at {self._model_dir}.")

    # *** training ***

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Iterable[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> Estimator:
        """Trains the model from its newest checkpoint on.

        Args:
          input_fn: function that returns features, a pair of features and labels, or a dataset of either. It may take
            `mode`, `params` and `config`.
          hooks: hooks of the training session.
          steps: number of further steps. None: until the input ends or `max_steps`.
          max_steps: global step at which the training ends. If it is reached already, nothing is done.
          saving_listeners: `tf.train.CheckpointSaverListener`s.

        Returns:
          The estimator.

        Raises:
          ValueError: both `steps` and `max_steps` are given, or one is not positive.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        if max_steps is not None and self._trained_steps() >= max_steps:
            info("Skipping training since max_steps has already saved.")
            return self
        found = _checked_hooks(hooks)
        if steps is not None or max_steps is not None:
            found.append(hooks_.StopAtStepHook(steps, max_steps))
        with self._graph():
            features, labels, more = self._input(input_fn, ModeKeys.TRAIN)
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self.config)
            self._warm_start()
            loss = self._train(spec, [*more, *found], _checked_listeners(saving_listeners))
        info("Loss for final step: %s.", loss)
        return self

    def _trained_steps(self) -> int:
        """Returns the global step of the newest checkpoint; 0 without one."""
        prefix = self.latest_checkpoint()
        return 0 if prefix is None else int(checkpoints.load_variable(prefix, _STEP))

    def _train(self, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> Any:
        """Runs training steps until a hook or the input ends them; returns the last loss."""
        config = self._config
        step = get_global_step()
        if not any(x.op.name == LOSS for x in get_collection(GraphKeys.SUMMARIES)):
            summary.scalar(LOSS, spec.loss)
        add_to_collection(GraphKeys.LOSSES, spec.loss)
        hooks.append(hooks_.NanTensorHook(spec.loss))
        if config.log_step_count_steps is not None:
            logged = {LOSS: spec.loss, "step": step}
            hooks.append(hooks_.LoggingTensorHook(logged, every_n_iter=config.log_step_count_steps))
        hooks.extend(spec.training_hooks)
        if not (spec.scaffold.saver or get_collection(GraphKeys.SAVERS)):
            add_to_collection(
                GraphKeys.SAVERS,
                Saver(
                    sharded=True,
                    max_to_keep=config.keep_checkpoint_max,
                    keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
                    defer_build=True,
                    save_relative_paths=True,
                ),
            )
        chief = []
        savers = [h for h in (*hooks, *spec.training_chief_hooks) if isinstance(h, hooks_.CheckpointSaverHook)]
        if (config.save_checkpoints_secs or config.save_checkpoints_steps) and not savers:
            chief = savers = [
                hooks_.CheckpointSaverHook(
                    self._model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    scaffold=spec.scaffold,
                    save_graph_def=config.checkpoint_save_graph_def,
                )
            ]
        if listeners and not savers:
            raise ValueError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
            )
        if listeners:
            savers[0].add_listeners(listeners)
        loss, count = None, 0
        with monitored.MonitoredTrainingSession(
            checkpoint_dir=self._model_dir,
            scaffold=spec.scaffold,
            hooks=hooks,
            chief_only_hooks=(*chief, *spec.training_chief_hooks),
            save_checkpoint_secs=0,  # the hook above saves
            save_summaries_steps=config.save_summary_steps,
            config=config.session_config,
            max_wait_secs=config.session_creation_timeout_secs,
            log_step_count_steps=config.log_step_count_steps,
            save_graph_def=config.checkpoint_save_graph_def,
        ) as session:
            while not session.should_stop():
                count += 1
                _, loss = session.run([spec.train_op, spec.loss])
        if not count:
            warn("Training with estimator made no steps. Perhaps input is empty or misspecified.")
        return loss

    # *** evaluation ***

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Computes the metrics of the model, and writes them as summaries to `eval_dir(name)`.

        Args:
          input_fn: see `train`.
          steps: number of batches. None: until the input ends.
          hooks: hooks of the session.
          checkpoint_path: the checkpoint. None: the newest one. Without any, the variables have their initial values.
          name: name of the evaluation, a part of the folder's name.

        Returns:
          The metrics of `eval_metric_ops` by name, the mean of the losses of the batches as "loss", and "global_step".

        Raises:
          ValueError: `steps` is not positive, or a metric has the name "loss" or "global_step".
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        found = _checked_hooks(hooks)
        path = self._path(checkpoint_path, "evaluate")
        with self._graph():
            features, labels, more = self._input(input_fn, ModeKeys.EVAL)
            spec = self._call_model_fn(features, labels, ModeKeys.EVAL, self.config)
            self._warm_start(path)
            values, updates = _metrics_of(spec)
            values[_STEP] = get_global_step()
            results = evaluation.evaluate_once(
                path, spec.scaffold, updates, values, steps, [*more, *found, *spec.evaluation_hooks],
                self._config.session_config,
            )  # fmt: skip
        evaluation.write_results(self.eval_dir(name), results, int(results[_STEP]), path)
        return results

    # *** prediction ***

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields the predictions of the model.

        The graph is built when the first one is requested.

        Args:
          input_fn: see `train`. Labels are ignored.
          predict_keys: names of the predictions to compute, if they are a dict. None: all.
          hooks: hooks of the session.
          checkpoint_path: see `evaluate`.
          yield_single_examples: whether to yield the prediction of each example, and not those of each batch.

        Raises:
          ValueError: `predict_keys` names no prediction, the predictions are no dict, or their batches have different
            lengths.
        """
        found = _checked_hooks(hooks)
        path = self._path(checkpoint_path, "predict")
        # The session is opened in the graph's context, and the context is left before a value is yielded: a generator's
        # context would stay that of its caller.
        with contextlib.ExitStack() as stack:
            with self._graph():
                features, _, more = self._input(input_fn, ModeKeys.PREDICT)
                spec = self._call_model_fn(features, None, ModeKeys.PREDICT, self.config)
                self._warm_start(path)
                predictions = _chosen(spec.predictions, predict_keys)
                session = monitored.MonitoredSession(
                    monitored.ChiefSessionCreator(
                        spec.scaffold, config=self._config.session_config, checkpoint_filename_with_path=path
                    ),
                    [*more, *found, *spec.prediction_hooks],
                )
            stack.enter_context(session)
            while not session.should_stop():
                values = session.run(predictions)
                if not yield_single_examples:
                    yield values
                elif not isinstance(predictions, Mapping):
                    yield from values
                else:
                    for i in range(_batch_length(values)):
                        yield {name: value[i] for name, value in values.items()}

    # *** export ***

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes a SavedModel of one mode, with the values of a checkpoint.

        Args:
          export_dir_base: the folder in which the SavedModel gets a folder, which is named by the time in seconds.
          serving_input_receiver_fn: function that makes placeholders, and returns a `ServingInputReceiver`.
          assets_extra: paths in the folder "assets.extra" of the SavedModel -> paths of files that are copied there.
          as_text: whether to write protobuf's text form.
          checkpoint_path: the checkpoint. None: the newest one, or else that of the warm start.
          experimental_mode: the mode; its tag is "serve" for prediction, "train" or "eval".

        Returns:
          The path of the SavedModel.

        Raises:
          ValueError: there is no checkpoint, the model has variables that it lacks, or a function or file is missing.

        Example:
          >>> import headrace.v1 as tf
          >>> import numpy as np, tempfile
          >>> folder = tempfile.TemporaryDirectory()
          >>> x = np.array([1.0, 2.0], np.float32)
          >>> model = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], folder.name)
          >>> _ = model.train(tf.estimator.inputs.numpy_input_fn({"x": x}, 2 * x, num_epochs=1, shuffle=False))
          >>> spec = {"x": tf.FixedLenFeature([1], tf.float32)}
          >>> receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
          >>> path = model.export_saved_model(folder.name + "/exports", receiver)
          >>> with tf.Session(graph=tf.Graph()) as sess:
          ...     sorted(tf.saved_model.load(sess, ["serve"], path.decode()).signature_def)
          ['predict', 'regression', 'serving_default']
          >>> folder.cleanup()
        """
        if serving_input_receiver_fn is None:
            raise ValueError("An input_receiver_fn must be defined.")
        functions_of_modes = {experimental_mode: serving_input_receiver_fn}
        return self._export(export_dir_base, functions_of_modes, assets_extra, as_text, checkpoint_path, True)

    def export_savedmodel(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Writes a SavedModel for prediction. An older name of `export_saved_model`.

        Args:
          export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path: see `export_saved_model`.
          strip_default_attrs: whether to leave out attributes that have their default value.

        Returns:
          The path of the SavedModel.

        Raises:
          ValueError: see `export_saved_model`.
        """
        functions_of_modes = {ModeKeys.PREDICT: serving_input_receiver_fn}
        return self._export(
            export_dir_base, functions_of_modes, assets_extra, as_text, checkpoint_path, strip_default_attrs
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Writes a SavedModel with a graph for each of several modes.

        The graphs share the values of variables.

        Args:
          export_dir_base, assets_extra, as_text, checkpoint_path: see `export_saved_model`.
          input_receiver_fn_map: keys of `ModeKeys` -> functions that make placeholders. For training and evaluation,
            they return the result of `tf.estimator.experimental.build_raw_supervised_input_receiver_fn`'s function.

        Returns:
          The path of the SavedModel.

        Raises:
          ValueError: see `export_saved_model`.
        """
        return self._export(export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path, True)

    def _export(
        self,
        base: str | os.PathLike[str],
        receivers: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint: str | None,
        is_stripped: bool,
    ) -> bytes:
        from headrace.v1.estimator import exporting
        from headrace.v1.saved_model.builder import SavedModelBuilder

        checkpoint = checkpoint or self.latest_checkpoint() or self._warm_start_checkpoint()
        if not checkpoint:
            raise ValueError(f"Couldn't find trained model at {self._model_dir}.")
        modes = [mode for mode in exporting.TAGS if receivers.get(mode)]
        if not modes:
            raise ValueError(f"No valid modes for exporting found. Got {list(receivers)}.")
        with exporting.numbered_folder(base) as (path, final):
            builder = SavedModelBuilder(path)
            for mode in modes:
                with self._graph(is_placed=False):
                    self._add_graph(builder, mode, receivers[mode], checkpoint, mode == modes[0], is_stripped)
            builder.save(as_text)
            exporting.add_extra_files(path, assets_extra)
        return os.fsencode(final)

    def _add_graph(
        self, builder: Any, mode: str, receiver_fn: Any, checkpoint: str, is_first: bool, is_stripped: bool
    ) -> None:
        """Adds the graph of a mode to a SavedModel, the first one with values."""
        from headrace.v1.estimator import exporting

        receiver = receiver_fn()
        labels = getattr(receiver, "labels", None)
        spec = self._call_model_fn(receiver.features, labels, mode, self.config)
        found = exporting.signatures(receiver, exporting.outputs_of(spec, mode), mode)
        init = spec.scaffold.local_init_op
        init = monitored.Scaffold.default_local_init_op() if init is None else init
        saver = spec.scaffold.saver or Saver(sharded=True)
        with Session(config=self._config.session_config) as session:
            try:
                saver.restore(session, checkpoint)
            except NotFoundError as e:
                raise ValueError(
                    "Could not load all requested variables from checkpoint. Please make sure your model_fn does not "
                    f"expect variables that were not saved in the checkpoint.\n\nEncountered error with mode `{mode}` "
                    f"while restoring checkpoint from: `{checkpoint}`. {e}"
                ) from e
            if spec.train_op is not None:
                add_to_collection(exporting.TRAIN_OP, spec.train_op)
            given = {
                "tags": [exporting.TAGS[mode]], "signature_def_map": found, "main_op": init, "saver": saver,
                "assets_collection": get_collection(GraphKeys.ASSET_FILEPATHS), "strip_default_attrs": is_stripped,
            }  # fmt: skip
            if is_first:
                builder.add_meta_graph_and_variables(session, **given)
            else:
                builder.add_meta_graph(**given)

    def _warm_start_checkpoint(self) -> str | None:
        """Returns the prefix of the checkpoint of the warm start, or None."""
        found = self._warm_start_from and self._warm_start_from.ckpt_to_initialize_from
        return checkpoints.latest_checkpoint(found) if found and os.path.isdir(found) else found

    # *** graphs ***

    @contextlib.contextmanager
    def _graph(self, is_placed: bool = True) -> Iterator[None]:
        """Context of a new graph with a global step."""
        config = self._config
        graph = Graph()
        with graph.as_default(), device(config.device_fn if is_placed else None):
            set_random_seed(config.tf_random_seed)
            assert_global_step(self._create_global_step(graph))
            yield

    def _create_global_step(self, graph: Graph) -> Any:
        return create_global_step(graph)

    def _input(self, input_fn: Any, mode: str) -> tuple[Any, Any, list[Any]]:
        return functions.call_input_fn(input_fn, mode, self.params, self.config)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        info("Calling model_fn.")
        spec = functions.call_model_fn(self._model_fn, features, labels, mode, self.params, config)
        info("Done calling model_fn.")
        return spec

    def _warm_start(self, path: str | None = None) -> None:
        """Lets variables begin with the values of another checkpoint, unless one is restored from `path`."""
        if self._warm_start_from is not None and path is None:
            info("Warm-starting with WarmStartSettings: %s", self._warm_start_from)
            warm_start(*self._warm_start_from)

    def _path(self, given: str | None, purpose: str) -> str | None:
        path = given or self.latest_checkpoint()
        if path is None:
            info(
                "Could not find trained model in model_dir: %s, running initialization to %s.", self._model_dir, purpose
            )
        return path


def _checkpoint_of(path: str) -> str:
    """Returns the prefix of the checkpoint in a SavedModel; another path as it is."""
    prefix = saved_model.variables_path(path)
    return prefix if os.path.isfile(f"{prefix}.index") else path


def _checked_hooks(hooks: Any) -> list[Any]:
    found = list(hooks or ())
    for hook in found:
        if not isinstance(hook, hooks_.SessionRunHook) and not hasattr(hook, "after_create_session"):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return found


def _checked_listeners(listeners: Any) -> list[Any]:
    found = list(listeners or ())
    for listener in found:
        if not isinstance(listener, hooks_.CheckpointSaverListener) and not hasattr(listener, "after_save"):
            raise TypeError(f"saving_listeners must be a list of CheckpointSaverListener, given: {listener}")
    return found


def _metrics_of(spec: EstimatorSpec) -> tuple[dict[str, Any], list[Any]]:
    """Returns the values of the metrics, sorted by name, and their updates.

    Raises:
      ValueError: a metric has a name that is reserved.
    """
    given = dict(spec.eval_metric_ops)
    for name in (LOSS, _STEP):
        if name in given:
            raise ValueError(
                f'Metric with name "{name}" is not allowed, because Estimator already defines a default metric with '
                "the same name."
            )
    given[LOSS] = metrics.mean(spec.loss)
    pairs = {name: given[name] for name in sorted(given)}
    return {name: array_ops.identity(pair[0]) for name, pair in pairs.items()}, [pair[1] for pair in pairs.values()]


def _chosen(predictions: Any, keys: Any) -> Any:
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    keys = [keys] if isinstance(keys, str) else list(keys)
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(f"Expected to run at least one output from {list(predictions)}, provided {keys}.")
    return found


def _batch_length(values: Mapping[str, Any]) -> int:
    """Returns the number of examples of a batch of predictions.

    Raises:
      ValueError: the predictions have different numbers.
    """
    lengths = {name: value.shape[0] for name, value in values.items()}
    first = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length != first:
            raise ValueError(
                f"Batch length of predictions should be same. {name} has different batch length than others."
            )
    return int(first)
