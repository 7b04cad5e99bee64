"""Images: decoders restore encoded images, as the formats say, and refuse hostile data.

Pillow writes the files here, and the definitions of the formats; it is not asked to read what is checked exactly.
"""

from __future__ import annotations

import io
import struct
import sys
import warnings
import zlib
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from headrace.ops.image import formats, png

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
SMOOTH = np.stack(np.broadcast_arrays(np.arange(60)[:, None] * 4, np.arange(81) * 3, 128), -1).astype(np.uint8)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_file(rows: bytes, width: int, height: int, depth: int, colour: int, extra: bytes = b"", lace: int = 0) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, lace)
    parts = chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def saved(pixels: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(out, kind, **options)
    return out.getvalue()


# *** PNG ***


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (7, 1), (1, 9), (20, 31)])
def test_png_comes_back(dtype: Any, channels: int, size: tuple[int, int]) -> None:
    pixels = RNG.integers(0, np.iinfo(dtype).max, (*size, channels), dtype, endpoint=True)
    wanted = hr.dtypes.from_numpy(np.dtype(dtype))
    file = hr.image.encode_png(pixels)
    assert np.array_equal(hr.image.decode_png(file, dtype=wanted).numpy(), pixels)


def test_what_pillow_reads_of_our_files() -> None:
    for mode in ("L", "LA", "RGB", "RGBA"):
        pixels = np.asarray(Image.fromarray(SMOOTH).convert(mode))
        file = png.encoded(pixels if pixels.ndim == 3 else pixels[..., None])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(file))), pixels)


def test_batches_of_png() -> None:
    pixels = RNG.integers(0, 256, (2, 3, 4, 5, 1), np.uint8)
    files = hr.image.encode_png(pixels).numpy()
    assert files.shape == (2, 3)
    assert np.array_equal(hr.image.decode_png(files[1, 2]).numpy(), pixels[1, 2])


@pytest.mark.parametrize("colour", [2, 4, 6])
def test_rows_of_every_filter(colour: int) -> None:
    """16 bits: rows are predicted as the specification says, and decoded here."""
    channels = {2: 3, 4: 2, 6: 4}[colour]
    pixels = RNG.integers(0, 65536, (10, 6, channels), np.uint16)
    step, raw = 2 * channels, pixels.astype(">u2").reshape(10, -1).view(np.uint8).astype(int)
    rows = b""
    for y in range(10):
        kind, out = y % 5, []
        for i in range(raw.shape[1]):
            a = raw[y, i - step] if i >= step else 0
            b = raw[y - 1, i] if y else 0
            c = raw[y - 1, i - step] if y and i >= step else 0
            guess = a + b - c
            nearest = min((abs(guess - a), 0, a), (abs(guess - b), 1, b), (abs(guess - c), 2, c))[2]
            out.append((raw[y, i] - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
        rows += bytes([kind, *out])
    file = png_file(rows, 6, 10, 16, colour)
    assert np.array_equal(hr.image.decode_png(file, dtype=hr.uint16).numpy(), pixels)
    assert np.array_equal(hr.image.decode_png(file).numpy(), pixels >> 8)


def test_channels_are_converted() -> None:
    pixels = np.array([[[44, 208, 166], [9, 9, 9]]], np.uint8)
    file = png.encoded(pixels)
    assert hr.image.decode_png(file, 1).numpy().tolist() == [[[154], [9]]]  # as libpng mixes them
    assert hr.image.decode_png(file, 4).numpy().tolist() == [[[44, 208, 166, 255], [9, 9, 9, 255]]]
    assert hr.image.decode_png(file, 3, hr.uint16).numpy().tolist() == [[[11308, 53456, 42662], [2313] * 3]]
    grey = png.encoded(pixels[..., :1])
    assert hr.image.decode_png(grey, 3).numpy().tolist() == [[[44] * 3, [9] * 3]]
    with_alpha = png.encoded(np.array([[[5, 7]]], np.uint8))
    assert hr.image.decode_png(with_alpha, 4).numpy().tolist() == [[[5, 5, 5, 7]]]
    assert hr.image.decode_png(with_alpha, 1).numpy().tolist() == [[[5]]]


def test_palettes_and_few_bits() -> None:
    palette = chunk(b"PLTE", bytes([1, 2, 3, 4, 5, 6]))
    file = png_file(b"\0\0\1", 2, 1, 8, 3, palette)
    assert hr.image.decode_png(file).numpy().tolist() == [[[1, 2, 3], [4, 5, 6]]]
    clear = png_file(b"\0\0\1", 2, 1, 8, 3, palette + chunk(b"tRNS", b"\x80"))
    assert hr.image.decode_png(clear).numpy().tolist() == [[[1, 2, 3, 128], [4, 5, 6, 255]]]
    assert hr.image.decode_png(clear, 3).numpy().tolist() == [[[1, 2, 3], [4, 5, 6]]]
    assert hr.image.decode_png(png_file(b"\0\xa0", 3, 1, 1, 0)).numpy().tolist() == [[[255], [0], [255]]]
    assert hr.image.decode_png(png_file(b"\0\x1f", 2, 1, 4, 0)).numpy().tolist() == [[[17], [255]]]


# *** the others ***


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_jpeg_is_near(mode: str, channels: int) -> None:
    pixels = np.asarray(Image.fromarray(SMOOTH).convert(mode)).reshape(60, 81, channels)
    file = hr.image.encode_jpeg(pixels)
    got = hr.image.decode_jpeg(file).numpy()
    assert got.shape == pixels.shape
    assert np.abs(got.astype(int) - pixels).max() <= 12
    assert hr.image.extract_jpeg_shape(file).numpy().tolist() == [60, 81, channels]
    small = hr.image.decode_jpeg(file, ratio=4).numpy()
    assert small.shape == (15, 21, channels)
    assert abs(small.mean() - pixels.mean()) < 3
    part = hr.image.decode_and_crop_jpeg(file, [10, 20, 30, 40]).numpy()
    assert np.array_equal(part, got[10:40, 20:60])
    one, three = hr.image.decode_jpeg(file, 1).numpy(), hr.image.decode_jpeg(file, 3).numpy()
    assert one.shape == (60, 81, 1)
    assert three.shape == (60, 81, 3)
    assert np.abs(three.mean(-1, keepdims=True) - one).max() < 90  # the same picture


def test_quality_and_format_of_jpeg() -> None:
    sizes = [len(hr.image.encode_jpeg(SMOOTH, quality=q).numpy()) for q in (5, 50, 100)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2]
    worse = hr.raw_ops.EncodeJpegVariableQuality(images=SMOOTH, quality=5).numpy()
    assert abs(len(worse) - sizes[0]) < 50
    centimetres = hr.image.encode_jpeg(SMOOTH, density_unit="cm", x_density=100, y_density=100).numpy()
    assert Image.open(io.BytesIO(centimetres)).info["dpi"] == (254, 254)
    assert Image.open(io.BytesIO(hr.image.encode_jpeg(SMOOTH, progressive=True).numpy())).info["progressive"]
    with pytest.raises(InvalidArgumentError, match=r"quality must be in \[0,100\], got 101"):
        hr.image.encode_jpeg(SMOOTH, quality=101)
    with pytest.raises(InvalidArgumentError, match="must have 1 channels"):
        hr.image.encode_jpeg(SMOOTH, "grayscale")


def test_animations() -> None:
    first = Image.new("RGB", (20, 10), (10, 20, 30))
    second = first.copy()
    second.paste((255, 0, 0), (5, 5, 9, 9))
    file = saved(first, "GIF", save_all=True, append_images=[second, first])
    frames = hr.image.decode_gif(file).numpy()
    assert frames.shape == (3, 10, 20, 3)
    assert np.array_equal(frames[1], np.asarray(second))
    assert np.array_equal(frames[2], np.asarray(first))
    assert np.array_equal(hr.image.decode_image(file).numpy(), frames)
    assert np.array_equal(hr.image.decode_image(file, expand_animations=False).numpy(), frames[0])
    with pytest.raises(InvalidArgumentError, match="Got 3 frames"):
        hr.image.decode_png(file)


def test_bitmaps() -> None:
    for mode, channels in (("RGB", 3), ("RGBA", 4)):
        pixels = np.asarray(Image.fromarray(SMOOTH).convert(mode))
        assert np.array_equal(hr.image.decode_bmp(saved(pixels, "BMP")).numpy(), pixels), channels
    grey = np.asarray(Image.fromarray(SMOOTH).convert("L"))
    file = saved(grey, "BMP")
    assert np.array_equal(hr.image.decode_bmp(file).numpy()[..., 0], grey)
    upright = bytearray(file)
    upright[22:26] = struct.pack("<i", -60)
    assert np.array_equal(hr.image.decode_bmp(bytes(upright)).numpy()[..., 0], grey[::-1])
    assert hr.image.decode_bmp(file, 4).numpy()[0, 0].tolist() == [*[grey[0, 0]] * 3, 255]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "JPEG"])
def test_any_format_as_any_dtype(kind: str) -> None:
    file = saved(Image.fromarray(SMOOTH).quantize(8).convert("RGB"), kind)
    plain = hr.image.decode_image(file).numpy()
    wide = hr.image.decode_image(file, dtype=hr.uint16).numpy()
    real = hr.image.decode_image(file, dtype=hr.float32).numpy()
    assert np.array_equal(wide >> 8, plain)
    np.testing.assert_allclose(real, plain / 255, atol=1e-6)


# *** errors ***


def test_formats_are_told_apart() -> None:
    with pytest.raises(InvalidArgumentError, match="One of JPEG, PNG, GIF, BMP, WebP required, got 4 bytes"):
        hr.image.decode_image(b"junk")
    with pytest.raises(InvalidArgumentError, match="empty"):
        hr.image.decode_png(b"")
    with pytest.raises(InvalidArgumentError, match="using a wrong op"):
        hr.image.decode_png(saved(SMOOTH, "BMP"))
    with pytest.raises(InvalidArgumentError, match="decode_png"):
        hr.image.decode_bmp(png.encoded(SMOOTH))
    for kind in ("TIFF", "PPM", "ICO"):  # Pillow could
        with pytest.raises(InvalidArgumentError, match="Unknown image file format"):
            hr.image.decode_image(saved(SMOOTH, kind))


def test_bombs_are_refused_before_they_go_off() -> None:
    huge = 1 << 15
    for file in (
        png_file(zlib.compress(bytes(1000)), huge, huge, 8, 2),
        b"GIF89a" + struct.pack("<HHBBB", huge, huge, 0, 0, 0) + b";",
        b"BM" + bytes(8) + struct.pack("<iiiihh", 54, 40, huge, huge, 1, 24) + bytes(24),
        b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 17, 8, huge, huge, 3) + bytes(9),
    ):
        with pytest.raises(ResourceExhaustedError, match="32768 x 32768 pixels; at most 67108864"):
            hr.image.decode_image(file)


def test_frames_count_together() -> None:
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1000, 1000, 0) + b"\x02\x02\x44\x01\x00"
    file = b"GIF89a" + struct.pack("<HHBBB", 1000, 1000, 0x80, 0, 0) + bytes(6) + frame * 100 + b";"
    with pytest.raises(ResourceExhaustedError, match="100 frames of 1000 x 1000"):
        hr.image.decode_gif(file)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP"])
def test_what_is_cut_off_is_refused(kind: str) -> None:
    file = saved(Image.fromarray(RNG.integers(0, 256, (40, 40, 3), np.uint8)), kind)
    for n in (0, 1, 10, 20, 30, len(file) // 2, len(file) - 40):
        with pytest.raises(InvalidArgumentError):
            hr.image.decode_image(file[:n])


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnimplementedError, match=r"pip install headrace\[train\]"):
        hr.image.decode_png(png.encoded(SMOOTH))


def test_damage_gives_errors_and_nothing_else() -> None:
    rng = np.random.default_rng(5)
    files = [png.encoded(SMOOTH), png.encoded(SMOOTH.astype(np.uint16) * 257)]
    files += [saved(SMOOTH, kind) for kind in ("JPEG", "BMP")]
    files += [saved(Image.fromarray(SMOOTH), "GIF", save_all=True, append_images=[Image.new("RGB", (81, 60))])]
    for file in files:
        for _ in range(60):
            damaged = bytearray(file)
            for at in rng.integers(0, min(len(damaged), 400), rng.integers(1, 5)):
                damaged[at] = rng.integers(0, 256)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's, about odd metadata
                try:
                    got = formats.kind_of(bytes(damaged)) and hr.image.decode_image(bytes(damaged), dtype=hr.uint16)
                except (InvalidArgumentError, ResourceExhaustedError, UnimplementedError):
                    continue
                else:
                    assert got.shape[-1] in (1, 2, 3, 4)


def test_webp() -> None:
    def file(pixels: np.ndarray, **more: Any) -> bytes:
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "WEBP", lossless=True, exact=True, **more)
        return out.getvalue()

    rng = np.random.default_rng(0)
    for channels in (3, 4):
        pixels = rng.integers(0, 256, (2, 5, 7, channels), np.uint8)
        data = file(pixels[0])
        for asked in (0, channels):
            assert np.array_equal(hr.image.decode_webp(data, asked).numpy(), pixels[:1])
        assert np.array_equal(hr.image.decode_image(data, expand_animations=False).numpy(), pixels[0])
        with pytest.raises(InvalidArgumentError, match="does not match input"):
            hr.image.decode_webp(data, 7 - channels)
        both = file(pixels[0], save_all=True, append_images=[Image.fromarray(pixels[1])])
        assert np.array_equal(hr.image.decode_webp(both).numpy(), pixels)
    with pytest.raises(InvalidArgumentError, match="only supports 3 or 4 channels"):
        hr.image.decode_webp(data, 1)
    with pytest.raises(InvalidArgumentError, match="using DecodeWebP op"):
        hr.image.decode_webp(png.encoded(SMOOTH))
    with pytest.raises(InvalidArgumentError, match="wrong op"):
        hr.image.decode_png(data)
    for bad in (b"", b"x" * 99, data[:30], data[:-9], data[:12] + b"VP8?" + data[16:], data[:16]):
        with pytest.raises(InvalidArgumentError):
            hr.image.decode_webp(bad)
    huge = data[:12] + b"VP8X" + data[16:24] + b"\xff" * 6 + data[30:]
    with pytest.raises(ResourceExhaustedError, match="at most"):
        hr.image.decode_webp(huge)
