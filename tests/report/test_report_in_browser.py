"""A report's page in headless Chromium: figures, switches, slider, widths; no error, no request.

Without Chromium these tests are skipped; where REQUIRE_CHROMIUM is set they fail instead.
"""

import os
import re
import shutil
import time

import pytest

from fedjax_syn import report
from tests.report.stored import KINDS, edit

pytest_plugins = ['tests.run_fixtures', 'tests.report.report_runs']

FLAGS = (
  '--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'
  ' --disable-component-update --disable-sync'
)
DESKTOP, PHONE = {'width': 1280, 'height': 900}, {'width': 390, 'height': 844}
SECONDS = 120.0  # for whatever is waited for: machines may be busy


@pytest.fixture(scope='module')
def browser():
  found = shutil.which('chromium') or shutil.which('chromium-browser')
  if not found and not os.environ.get('REQUIRE_CHROMIUM'):
    pytest.skip('no chromium on this machine')
  assert found, 'REQUIRE_CHROMIUM is set, and there is no chromium'
  from playwright.sync_api import sync_playwright

  with sync_playwright() as playwright:
    options = {'headless': True, 'args': FLAGS.split(), 'timeout': 1000 * SECONDS}
    browser = playwright.chromium.launch(executable_path=found, **options)
    yield browser
    browser.close()


@pytest.fixture(scope='module')
def file(run_folders, tmp_path_factory):
  path = tmp_path_factory.mktemp('report') / 'report.html'
  assert report.write(run_folders, path) == 3
  return path


@pytest.fixture(scope='module')
def page(browser, file):
  """Opens the page on a desktop, and records messages, errors and requests."""
  page = browser.new_page(viewport=DESKTOP)
  page.set_default_timeout(1000 * SECONDS)
  page.trouble = []
  page.on('console', lambda message: page.trouble.append(message.text))
  page.on('pageerror', lambda error: page.trouble.append(str(error)))
  own = file.as_uri()
  page.on(
    'request',
    lambda r: (
      page.trouble.append(r.url)
      if r.url != own and r.url.startswith(('http', 'file', 'ws'))
      else None
    ),
  )
  page.goto(own)
  page.wait_for_selector('#curve .line')
  yield page
  page.close()


def until(page, expression):
  """Waits for an expression to be true.

  Playwright's own function needs an eval, which the page forbids.
  """
  end = time.monotonic() + SECONDS
  while not page.evaluate(expression):
    assert time.monotonic() < end, expression
    page.wait_for_timeout(50)


def lines(page):
  """Labels of the curves that are drawn."""
  return page.evaluate("[...document.querySelectorAll('#curve .line')].map(l => l.dataset.run)")


def test_it_is_drawn(page):
  assert page.title() == 'DynaFed, FedAvg on digits'
  assert lines(page) == ['DynaFed (2)', 'FedAvg', 'DynaFed (1)']  # the first is above the others
  assert page.locator('#curve .band').count() == 2  # two seeds have one
  assert page.locator('[aria-labelledby="partition"] .heat').count() == 1  # all runs share it
  assert page.locator('.boxes svg').count() == 3
  assert page.locator('img').evaluate('image => image.naturalWidth') > 0
  for what in ('by client', 'by class', 'confusion matrix'):
    assert page.get_by_text(what).filter(has_text='DynaFed (2) (not finished)').count() == 1


def test_a_form_posts_nowhere(page):
  policy = page.locator('meta[http-equiv]').get_attribute('content')
  assert "form-action 'none'" in policy and "default-src 'none'" in policy


def test_the_legend_switches_by_keyboard(page):
  assert len(lines(page)) == 3
  box = page.get_by_role('checkbox', name='FedAvg')
  box.focus()
  page.keyboard.press('Space')
  assert len(lines(page)) == 2 and 'FedAvg' not in lines(page)
  assert 'FedAvg' not in page.locator('#curve').get_attribute('aria-label')
  page.keyboard.press('Space')
  assert 'FedAvg' in lines(page)


def ticks(page, axis):
  return [float(text) for text in page.locator(f'#curve .{axis}tick').all_text_contents()]


def points(page, run):
  """The corners of a curve, in pixels."""
  path = page.locator(f'#curve .line[data-run="{run}"]').get_attribute('d')
  return [tuple(map(float, part.split())) for part in path[1:].replace('M', 'L').split('L')]


def test_another_metric_and_bytes(page):
  page.locator('#metric').select_option('test/loss')
  page.locator('#against').select_option('up')
  assert ticks(page, 'x')[-1] == pytest.approx(70e-6)  # ten bytes a round, seven rounds
  missing = page.locator('#missing')
  assert missing.inner_text().startswith('Not drawn: DynaFed (2) is not finished')
  page.locator('#metric').select_option('test/accuracy')
  page.locator('#against').select_option('round')
  assert len(lines(page)) == 3 and missing.inner_text() == ''
  assert ticks(page, 'x') == [*range(8)]


def test_an_empty_chart_says_why(page):
  boxes = page.locator('#legend input')
  for box in boxes.all():
    box.uncheck()
  assert page.locator('#missing').inner_text() == 'Nothing is drawn: no run is chosen above.'
  assert page.locator('#curve svg').count() == 0
  boxes.nth(0).check()
  page.locator('#metric').select_option('personal/test/accuracy')
  assert page.locator('#missing').inner_text() == (
    'Nothing is drawn: DynaFed (1) did not measure it.'
  )
  page.locator('#metric').select_option('test/accuracy')
  for box in boxes.all():
    box.check()


def test_curves_are_smoothed(page):
  """The mean of three neighbours, in pixels as in per cent; the ends stay as they are."""
  only = [page.get_by_role('checkbox', name=f'DynaFed ({n})') for n in (1, 2)]
  for box in only:
    box.uncheck()
  before = points(page, 'FedAvg')
  values = lambda: [
    float(text)
    for text in re.findall(r'ends at ([\d.]+)', page.locator('#curve').get_attribute('aria-label'))
  ]
  end = values()
  page.locator('#smooth').select_option('3')
  after = points(page, 'FedAvg')
  assert values() == end and [x for x, _ in after] == [x for x, _ in before]
  raw = [y for _, y in before]
  means = [raw[0], *(sum(raw[i - 1 : i + 2]) / 3 for i in range(1, len(raw) - 1)), raw[-1]]
  # The y axis changes too: equal up to a shift and a scale.
  got = [y for _, y in after]
  scale = (got[0] - got[-1]) / (means[0] - means[-1])
  assert got == pytest.approx([got[0] + scale * (m - means[0]) for m in means], abs=1e-3)
  page.locator('#smooth').select_option('1')
  for box in only:
    box.check()


def test_the_pointer_shows_numbers_and_zooms(page):
  box = page.locator('#curve').bounding_box()
  at = lambda share: (box['x'] + share * box['width'], box['y'] + 100)
  page.mouse.move(*at(0.999))
  tip = page.locator('.tip')
  last = tip.inner_text().splitlines()
  assert last[0] == 'round 7' and [line.split(':')[0] for line in last[1:]] == [
    'DynaFed (1)',
    'FedAvg',
    'DynaFed (2)',
  ]
  label = page.locator('#curve').get_attribute('aria-label')
  assert all(line.replace(': ', ' ends at ') in label for line in last[1:])
  page.mouse.move(*at(0.5))
  page.mouse.down()
  page.mouse.move(*at(0.8))
  page.mouse.up()
  assert ticks(page, 'x')[0] >= 3 and ticks(page, 'x')[-1] <= 6
  page.mouse.dblclick(*at(0.5))
  assert ticks(page, 'x') == [*range(8)]


def test_the_slider_moves_by_keyboard(page):
  slider, image = page.get_by_role('slider', name='Synthesis'), page.locator('.set img')
  assert slider.get_attribute('aria-valuetext') == 'iteration 6 of 6'
  last = image.get_attribute('src')
  slider.focus()
  page.keyboard.press('ArrowLeft')
  assert slider.get_attribute('aria-valuetext') == 'iteration 3 of 6'
  assert page.locator('.set output').inner_text() == 'iteration 3 of 6'
  assert image.get_attribute('src') != last
  assert 'after iteration 3 of 6' in image.get_attribute('alt')
  page.keyboard.press('End')
  assert image.get_attribute('src') == last


def test_headings_and_landmarks_and_names(page):
  levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
  assert levels[0] == 1 and levels.count(1) == 1
  assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
  for tag in ('header', 'nav', 'main', 'footer'):
    assert page.locator(tag).count() == 1, tag
  assert page.locator('table:not(:has(caption))').count() == 0
  assert page.locator('th:not([scope])').count() == 0
  assert page.locator('img:not([alt])').count() == 0
  unnamed = "[...document.querySelectorAll('input,select')].filter(i => !i.labels.length).length"
  assert page.evaluate(unnamed) == 0


def contrast(a, b):
  """WCAG's ratio of two colours 'rgb(r, g, b)'."""

  def luminance(colour):
    parts = [int(n) / 255 for n in colour[4:-1].split(',')]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

  low, high = sorted((luminance(a), luminance(b)))
  return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_text_can_be_read(page, scheme):
  page.emulate_media(color_scheme=scheme)
  colour = lambda selector, kind: page.evaluate(
    f'getComputedStyle(document.querySelector({selector!r})).{kind}'
  )
  paper = colour('body', 'backgroundColor')
  for selector in ('body', '.note', 'nav a', 'td'):
    assert contrast(colour(selector, 'color'), paper) >= 4.5, selector
  page.emulate_media(color_scheme='light')


def test_a_phone_scrolls_one_way(page):
  page.set_viewport_size(PHONE)
  until(page, "document.querySelector('#curve svg')?.getBoundingClientRect().width <= 390")
  wide = page.evaluate('[document.documentElement.scrollWidth, window.innerWidth]')
  assert wide[0] <= wide[1] == 390
  results = "document.querySelector('[aria-labelledby=results-caption]')"
  hint = f"getComputedStyle({results}, '::before').content.includes('scroll sideways')"
  until(page, hint)  # the table is wider than the phone
  page.set_viewport_size(DESKTOP)
  until(page, f'!{hint}')


@pytest.mark.parametrize('clients', [['ann', 'bob'], ['007', '08']], ids=['words', 'digits'])
def test_clients_and_classes_have_their_names_on_a_phone(browser, named, tmp_path, clients):
  shutil.copytree(named, tmp_path / 'run')
  edit(tmp_path / 'run', lambda stored: stored['dataset'].update(client_names=clients))
  report.write([tmp_path / 'run'], tmp_path / 'named.html')
  with browser.new_context(viewport=PHONE) as context:
    page = context.new_page()
    page.set_default_timeout(1000 * SECONDS)
    page.goto((tmp_path / 'named.html').as_uri())
    held = page.locator('[aria-labelledby="partition-caption-0"]')
    assert held.locator('tbody th').all_text_contents() == clients
    assert held.locator('thead th').all_text_contents() == ['client', *KINDS, 'all']
    assert page.evaluate('document.documentElement.scrollWidth') <= PHONE['width']


def test_cells_of_heat_maps_are_shaded_by_their_numbers(page):
  """The darkest cell of a row of confusions is that of the most rows; an empty one is not."""
  cells = page.locator('[aria-labelledby="confusion-caption-0"] tbody tr').nth(1).locator('td')
  assert cells.all_text_contents() == ['', '2', '16', *[''] * 7, '18']  # of two seeds, see the fake
  colours = cells.evaluate_all('all => all.map(c => getComputedStyle(c).backgroundColor)')
  alphas = [float(re.findall(r'[\d.]+', colour)[-1]) for colour in colours]
  assert alphas == pytest.approx([0, 0.45 * 2 / 18, 0.45 * 16 / 18, *[0] * 8], abs=0.01)


def test_a_picture_of_one_column_is_small(page):
  assert page.locator('.set img').bounding_box()['width'] <= 3.2 * 16 + 1


def test_nothing_went_wrong(page):
  """Runs last: whatever the tests before made the page do."""
  assert page.trouble == []
