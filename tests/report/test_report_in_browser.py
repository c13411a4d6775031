"""A report's page in headless Chromium: figures, switches, slider, widths; no error, no request.

Without Chromium these tests are skipped; where REQUIRE_CHROMIUM is set they fail instead.
"""

import os
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
  page.wait_for_selector('#curve .scatterlayer')
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
  return page.evaluate("document.getElementById('curve').data.map(t => t.name).filter(n => n)")


def test_it_is_drawn(page):
  assert page.title() == 'dynafed, fedavg on digits'
  assert page.locator('#curve .scatterlayer .trace').count() >= 3
  assert page.locator('.partition .heatmaplayer image').count() == 1  # all runs share it
  assert page.locator('#spread .boxlayer .trace').count() == 3
  assert page.locator('img').evaluate('image => image.naturalWidth') > 0
  assert page.get_by_text('Not recorded by: dynafed (2).').count() == 2
  # Two seeds have a band, one has none.
  assert page.evaluate("document.getElementById('curve').data.filter(t => t.fill).length") == 2


def test_no_button_sends_a_chart_away(page):
  """Plotly's own bar has one that posts the chart to plotly.com; a form may post nowhere."""
  charts = page.locator('.js-plotly-plot')
  assert charts.count() == 3
  for chart in charts.all():
    chart.hover()  # its bar appears under the pointer
    sent = chart.evaluate('c => [c._context.showSendToCloud, c._context.plotlyServerURL]')
    assert sent == [False, '']
  assert page.locator('.modebar-btn, [data-title*="hare"], a[href*="plotly"]').count() == 0
  policy = page.locator('meta[http-equiv]').get_attribute('content')
  assert "form-action 'none'" in policy


def test_the_legend_switches_by_keyboard(page):
  assert len(lines(page)) == 3
  box = page.get_by_role('checkbox', name='fedavg')
  box.focus()
  page.keyboard.press('Space')
  assert len(lines(page)) == 2 and 'fedavg' not in lines(page)
  assert 'fedavg' not in page.locator('#curve').get_attribute('aria-label')
  page.keyboard.press('Space')
  assert 'fedavg' in lines(page)


def test_another_metric_and_bytes(page):
  page.locator('#metric').select_option('test/loss')
  page.locator('#against').select_option('up')
  drawn = page.evaluate("document.getElementById('curve').data.filter(t => t.name == 'fedavg')[0]")
  assert drawn['x'][-1] == pytest.approx(70e-6)  # ten bytes a round, seven rounds
  page.locator('#metric').select_option('test/accuracy')
  page.locator('#against').select_option('round')
  assert len(lines(page)) == 3


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
  until(page, "document.querySelector('#curve svg').getBoundingClientRect().width <= 390")
  wide = page.evaluate('[document.documentElement.scrollWidth, window.innerWidth]')
  assert wide[0] <= wide[1] == 390
  page.set_viewport_size(DESKTOP)


@pytest.mark.parametrize('size', [DESKTOP, PHONE], ids=['desktop', 'phone'])
@pytest.mark.parametrize('clients', [['ann', 'bob'], ['007', '08']], ids=['words', 'digits'])
def test_few_clients_have_their_names_as_ticks(browser, named, tmp_path, size, clients):
  shutil.copytree(named, tmp_path / 'run')
  edit(tmp_path / 'run', lambda stored: stored['dataset'].update(client_names=clients))
  report.write([tmp_path / 'run'], tmp_path / 'named.html')
  with browser.new_context(viewport=size) as context:
    page = context.new_page()
    page.set_default_timeout(1000 * SECONDS)
    page.goto((tmp_path / 'named.html').as_uri())
    page.wait_for_selector('.partition .heatmaplayer image')
    assert page.locator('.partition .xtick text').all_text_contents() == clients
    names = page.locator('.partition .ytick text')
    tops = names.evaluate_all('all => all.map(one => one.getBoundingClientRect().top)')
    from_above = [name for _, name in sorted(zip(tops, names.all_text_contents(), strict=True))]
    assert from_above == list(KINDS)  # as in learned sets
    assert page.evaluate('document.documentElement.scrollWidth') <= size['width']


def test_four_clients_without_names_have_whole_numbers(page):
  assert page.locator('.partition .xtick text').all_text_contents() == ['0', '1', '2', '3']


def test_the_palest_colour_of_a_partition_is_none(page):
  """Every client has some of every class here: none of them may look empty."""
  (map_,) = page.evaluate("document.querySelector('.partition').data")
  assert map_['zmin'] == 0 < min(min(row) for row in map_['z'])
  assert map_['zmax'] == max(max(row) for row in map_['z'])


def test_a_picture_of_one_column_is_small(page):
  assert page.locator('.set img').bounding_box()['width'] <= 3.2 * 16 + 1


def test_nothing_went_wrong(page):
  """Runs last: whatever the tests before made the page do."""
  assert page.trouble == []
