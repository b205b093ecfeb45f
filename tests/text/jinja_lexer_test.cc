// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text::jinja {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Texts(std::string_view source) {
  const auto tokens = Lex(source);
  if (!tokens.ok()) return {"error", tokens.error().message};
  std::vector<std::string> texts;
  for (const Token& token : *tokens) texts.push_back(token.text);
  return texts;
}

TEST(JinjaLexer, CutsDataAndCode) {
  EXPECT_THAT(Texts("a{{ b.c }}d"), ElementsAre("a", "{{", "b", ".", "c", "}}", "d", ""));
  EXPECT_THAT(Texts("{{ a//b**c }}"), ElementsAre("{{", "a", "//", "b", "**", "c", "}}", ""));
  EXPECT_THAT(Texts("{{ {'a': {}} }}"), ElementsAre("{{", "{", "a", ":", "{", "}", "}", "}}", ""));
}

TEST(JinjaLexer, TrimsBlocks) {
  EXPECT_EQ(Render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Render("a\n  {%+ if true +%}\n  b{% endif %}"), "a\n  \n  b");
  EXPECT_EQ(Render("a \n {%- if true -%} \n b {%- endif %}"), "ab");
  EXPECT_EQ(Render("a  {% if true %}b{% endif %}"), "a  b");
  EXPECT_EQ(Render("a\n  {{ 1 }}\nb"), "a\n  1\nb");
  EXPECT_EQ(Render("a {{- 1 -}} b"), "a1b");
}

TEST(JinjaLexer, RemovesCommentsAndOneTrailingNewline) {
  EXPECT_EQ(Render("a\n  {# x {{ #}\nb"), "a\nb");
  EXPECT_EQ(Render("a {#- x -#} b"), "ab");
  EXPECT_EQ(Render("a\n\n"), "a\n");
  EXPECT_EQ(Render("a\r\nb\rc"), "a\nb\nc");
}

TEST(JinjaLexer, KeepsRawText) {
  EXPECT_EQ(Render("{% raw %}{{ x }}{% if %}{% endraw %}"), "{{ x }}{% if %}");
  EXPECT_EQ(Render("a {%- raw -%} b {%- endraw -%} c"), "abc");
  EXPECT_TRUE(Fails("{% raw %}a"));
}

TEST(JinjaLexer, ReadsLiterals) {
  EXPECT_EQ(Print(R"('a\n\x41\u00e9\U0001F600\101\q')"), "a\nA\u00e9\U0001F600A\\q");
  EXPECT_EQ(Print("1_000 + 0x1F + 0b11 + 0o7"), "1041");
  EXPECT_EQ(Print("[1e3, 1.5e-3, 1e999]"), "[1000.0, 0.0015, inf]");
  EXPECT_TRUE(Fails("{{ 99999999999999999999 }}"));
  EXPECT_TRUE(Fails(R"({{ '\x4' }})"));
  EXPECT_TRUE(Fails(R"({{ '\ud800' }})"));
}

TEST(JinjaLexer, RefusesWhatIsNotClosed) {
  for (const char* source : {"{{ 1", "{% if", "{# x", "{{ 'a }}", "{{ (1] }}", "{{ ) }}", "{{ ? }}"}) {
    EXPECT_FALSE(Lex(source).ok()) << source;
  }
  EXPECT_FALSE(Lex("\xff").ok());
  EXPECT_FALSE(Lex("{{ " + std::string(2000, 'a') + " }}").ok());
  EXPECT_FALSE(Lex(std::string(kMaxSource + 1, 'a')).ok());
}

TEST(JinjaLexer, CountsLines) {
  const auto tokens = Lex("a\n{# \n #}\n{{\n x }}");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ((*tokens)[1].line, 4);
  EXPECT_EQ((*tokens)[2].line, 5);
}

TEST(TokenStream, StaysAtTheEnd) {
  auto tokens = Lex("{{ a }}");
  ASSERT_TRUE(tokens.ok());
  TokenStream stream(*tokens);
  stream.Next();
  EXPECT_TRUE(stream.AtName("a"));
  EXPECT_TRUE(stream.SkipName("a"));
  EXPECT_FALSE(stream.SkipOperator("+"));
  EXPECT_TRUE(stream.Expect(TokenKind::kPrintEnd).ok());
  EXPECT_EQ(stream.Next().kind, TokenKind::kEnd);
  EXPECT_EQ(stream.Next().kind, TokenKind::kEnd);
  EXPECT_THAT(stream.Unexpected("x").message, HasSubstr("end of the template"));
}

}  // namespace
}  // namespace trivet::text::jinja
