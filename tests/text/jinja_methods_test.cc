// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_methods.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

TEST(JinjaMethods, Dictionaries) {
  const char* context = R"({"d":{"a":1,"b":null}})";
  EXPECT_EQ(Print("[d.get('a'), d.get('z'), d.get('z', 5), d.get('b', 5)]", context), "[1, None, 5, None]");
  EXPECT_EQ(Print("d.items()", context), "dict_items([('a', 1), ('b', None)])");
  EXPECT_EQ(Print("[d.keys()|list, d.values()|list, d.copy() == d]", context), "[['a', 'b'], [1, None], True]");
  EXPECT_EQ(Render("{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", context), "a1bNone");
  EXPECT_TRUE(Fails("{{ d.get([1]) }}", context));
  EXPECT_TRUE(Fails("{{ d.get(key='a') }}", context));
}

TEST(JinjaMethods, Sequences) {
  EXPECT_EQ(Print("[[1, 2, 1].index(2), (1, 2, 1).count(1), [1, 2, 1].index(1, 1), range(0, 9, 3).index(6)]"),
            "[1, 2, 2, 2]");
  EXPECT_TRUE(Fails("{{ [1].index(2) }}"));
}

TEST(JinjaMethods, Cyclers) {
  EXPECT_EQ(Render("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = "
                   "c.reset() %}"
                   "{{ c.next() }}"),
            "ababa");
}

TEST(JinjaMethods, LoopsThatAreOverRefuseToBeAsked) {
  EXPECT_TRUE(
      Fails("{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}{{ ns.l.changed(1) }}"));
  EXPECT_TRUE(Fails("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}"));
}

}  // namespace
}  // namespace trivet::text
