"""The photos that reproductions on ImageNet share: those in `imagenet_sample/images` under the data root."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from standfast.data.image_files import IMAGES
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import check

FOLDER = "imagenet_sample/images"
#: pixels: photos are resized to this short side, then cropped to this size in the middle
SHORT, CROP = 256, 224


def load_photos(count: int, side: int) -> Tensor:
    """The first `count` photos by name in `imagenet_sample/images` of the data root, (count, 3, side, side) in [0, 1].

    Photos are resized to a short side of 256 and cropped to the middle 224 x 224, as is usual for networks for
    ImageNet. If `side` differs from 224, they are then resized.

    Raises `MissingDataError` if there are fewer photos.
    """
    folder = data_root() / FOLDER
    files = sorted(file for file in folder.glob("*") if file.suffix.lower() in IMAGES)
    if len(files) < count:
        raise MissingDataError(
            f"{count} photos are needed in {folder}, found {len(files)}; {VARIABLE} can name another root"
        )
    return torch.stack([_to_tensor(Image.open(file), side) for file in files[:count]])


def _to_tensor(image: Image.Image, side: int) -> Tensor:
    check(side >= 1, "side", "at least 1", side)
    image = image.convert("RGB")
    if min(image.size) != SHORT:
        scale = SHORT / min(image.size)
        width, height = (max(SHORT, round(scale * length)) for length in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = ((length - CROP) // 2 for length in image.size)
    image = image.crop((left, top, left + CROP, top + CROP))
    if side != CROP:
        image = image.resize((side, side), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float().div_(255)
