"""Takes a picture of a page in headless Chromium: `python -m tools.page_pictures PAGE PICTURE.png`.

--width and --height are those of the window in pixels, 1180 and 900 by default; --whole takes the
page down to its end, --to=SELECTOR up to the bottom of an element.
"""

import argparse
import shutil
from pathlib import Path

from PIL import Image

FLAGS = ('--no-sandbox', '--disable-gpu')
COLOURS = 128  # of a picture: a page of text and lines needs no more


def picture(page: str, path: Path, width: int, height: int, whole: bool, to: str) -> None:
  """Opens a page and writes what it shows; see the module.

  Args:
    page: a file or an address.
    path: the picture, a PNG file.
    width: of the window, in pixels.
    height: of the window, in pixels.
    whole: whether the picture goes down to the end of the page.
    to: a CSS selector of the last element that it shows; '' is none.
  """
  from playwright.sync_api import sync_playwright  # with the extra `test`

  address = Path(page).resolve().as_uri() if Path(page).exists() else page
  with sync_playwright() as playwright:
    found = shutil.which('chromium') or shutil.which('chromium-browser')
    browser = playwright.chromium.launch(executable_path=found, args=[*FLAGS])
    tab = browser.new_page(viewport={'width': width, 'height': height})
    tab.goto(address)
    tab.wait_for_timeout(500)
    box = tab.locator(to).first.bounding_box() if to else None
    clip = box and {'x': 0, 'y': 0, 'width': width, 'height': box['y'] + box['height'] + 8}
    tab.screenshot(path=path, full_page=whole or bool(to), clip=clip)
    browser.close()
  Image.open(path).convert('RGB').quantize(COLOURS).save(path, optimize=True)


def main() -> None:
  """Takes one picture."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('page')
  parser.add_argument('picture', type=Path)
  parser.add_argument('--width', type=int, default=1180)
  parser.add_argument('--height', type=int, default=900)
  parser.add_argument('--whole', action='store_true')
  parser.add_argument('--to', default='')
  given = parser.parse_args()
  picture(given.page, given.picture, given.width, given.height, given.whole, given.to)


if __name__ == '__main__':
  main()
