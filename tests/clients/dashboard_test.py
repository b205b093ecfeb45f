#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a headless Chromium: chat, figures, layout, the key, a phone's width, dark and light."""

import os
import pathlib
import shutil
import unittest

from playwright.sync_api import sync_playwright

from server import KEY, ROOT, DemoCase

CHROMIUM = shutil.which("chromium")
PICTURES = pathlib.Path(os.environ.get("TRIVET_PICTURES", ROOT / "build" / "clients" / "pictures"))


@unittest.skipUnless(CHROMIUM, "chromium is absent (tools/install_deps.sh --clients)")
class DashboardTest(DemoCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        PICTURES.mkdir(parents=True, exist_ok=True)
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()
        super().tearDownClass()

    def open(self, scheme, width, height):
        page = self.browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.errors, self.asked = [], []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(self.server.url + "/")
        page.wait_for_selector("dialog[open]")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.wait_for_timeout(500)
        page.wait_for_selector("dialog[open]")
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#layout svg")
        return page

    def look(self, scheme, width, height):
        page = self.open(scheme, width, height)
        # By keyboard alone.
        page.focus("#text")
        for question, answer in (("Count from 48 to 52.", "48, 49, 50, 51, 52"), ("Write 249 in words.", "two hundred")):
            page.keyboard.type(question)
            page.keyboard.press("Enter")
            page.locator(".assistant").last.filter(has_text=answer).wait_for()
            page.wait_for_selector("#send:text('Send')")
        # Not by functions that the page's Content-Security-Policy keeps from being evaluated.
        page.locator("#recent tr").nth(1).wait_for(state="attached")
        page.locator("#time .rank").nth(2).wait_for(state="attached")
        self.assertEqual(page.locator("#time .rank").count(), 3)
        self.assertEqual(page.locator("#memory .rank").count(), 3)
        self.assertEqual(page.locator("#layout svg").count(), 5)
        self.assertIn("Q 0–3, KV 0", page.locator("#layout").text_content())
        self.assertEqual(page.locator("#health").text_content(), "serving")
        wide = page.evaluate("document.documentElement.scrollWidth")
        self.assertLessEqual(wide, width, "the page is wider than the screen")
        page.screenshot(path=PICTURES / f"{scheme}-{width}.png", full_page=True)
        self.assertEqual(self.errors, [])
        self.assertTrue(all(url.startswith(self.server.url) or url.startswith("data:") for url in self.asked), self.asked)
        page.close()

    def test_light(self):
        self.look("light", 1280, 900)

    def test_dark(self):
        self.look("dark", 1280, 900)

    def test_phone(self):
        self.look("light", 390, 844)

    def test_dark_phone(self):
        self.look("dark", 390, 844)


if __name__ == "__main__":
    unittest.main()
