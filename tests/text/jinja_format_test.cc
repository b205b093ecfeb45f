// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_format.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

TEST(JinjaFormat, Percent) {
  EXPECT_EQ(Print("'%s-%d-%r' % ('a', 3.7, 'b')"), "a-3-'b'");
  EXPECT_EQ(Print("'%5.2f|%-5d|%05d|%+d|% d|%x|%#X|%o' % (1.005, 3, -4, 5, 6, 255, 255, 8)"),
            " 1.00|3    |-0004|+5| 6|ff|0XFF|10");
  EXPECT_EQ(Print("'%(a)s %(b)03d%%' % {'a': 1, 'b': 2}"), "1 002%");
  EXPECT_EQ(Print("'%*d|%.*f|%.2s|%c' % (5, 3, 2, 3.14159, 'abc', 65)"), "    3|3.14|ab|A");
  EXPECT_EQ(Print("'%s' % [1, 2]"), "[1, 2]");
  for (const char* source : {"'%s %s' % 1", "'%s' % (1, 2)", "'%d' % 'a'", "'%z' % 1", "'%' % 1", "'%(z)s' % {}",
                             "'abc' % 1", "'%99999999d' % 1", "'%.99999f' % 1"}) {
    EXPECT_TRUE(Fails(std::string("{{ ") + source + " }}")) << source;
  }
}

TEST(JinjaFormat, Braces) {
  EXPECT_EQ(Print("'{} {1}'.format(1, 2) if false else '{1} {0} {a}'.format(1, 2, a=3)"), "2 1 3");
  EXPECT_EQ(Print("'{{}} {a.b} {a[b]} {0[1]}'.format([5, 6], a={'b': 7})"), "{} 7 7 6");
  EXPECT_EQ(Print("'{!r:>5}|{:{}}|'.format('a', 'b', 3)"), "  'a'|b  |");
  for (const char* source :
       {"'{}'.format()", "'{0} {}'.format(1, 2)", "'{'.format()", "'}'.format()", "'{x}'.format()",
        "'{:d}'.format('a')", "'{:5}'.format(none)", "'{:{:{}}}'.format(1, 2, 3)", "'{0.x.y}'.format({})"}) {
    EXPECT_TRUE(Fails(std::string("{{ ") + source + " }}")) << source;
  }
}

TEST(JinjaFormat, TimeNow) {
  EXPECT_EQ(Print("strftime_now('a%%b')"), "a%b");
  EXPECT_EQ(Print("strftime_now('')"), "");
  EXPECT_EQ(Print("strftime_now('%Y')|length"), "4");
  EXPECT_TRUE(Fails("{{ strftime_now('x' * 2000) }}"));
  EXPECT_TRUE(Fails("{{ strftime_now('%999999d') }}"));
}

}  // namespace
}  // namespace trivet::text
