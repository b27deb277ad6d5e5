"""Texts that tokenizers stumble over, each for a reason. Grouped, distinct, more than 200."""

from __future__ import annotations

_EMOJI = (
    "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ❤ ☺︎ 🧑🏿‍🚀 🫠 👩🏻‍❤️‍💋‍👨🏼 #️⃣ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ©️ ™ 🀄 ⌚️ 😀😀😀".split(" ")
)
_SCRIPTS = (
    "你好，世界！",
    "日本語のテキスト、カタカナ",
    "한국어 텍스트입니다",
    "龍龘靐齉",
    "𠀀𠀁𪛖",
    "Ελληνικά ΑΣΣ ς",
    "Привет, мир",
    "مرحبا بالعالم",
    "שלום עולם",
    "हिन्दी क्षत्रिय",
    "தமிழ் நி",
    "ไทยภาษาไม่มีช่องว่าง",
    "ខ្មែរ",
    "አማርኛ",
    "ქართული",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛",
    "ﷺ ﬁ ﬀ",
    "ǅ ǆ Ǆ ß ẞ İ ı",
    "‏שלום‎ abc ‮gnol‬",
    "⠃⠗⠁⠊⠇⠇⠑",
    "mixed 漢字 and русский and عربى",
    "中文English混排123数字",
)
_MARKS = (
    "é e\u0301 é",
    "a\u0300\u0301\u0302\u0303\u0304",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙A͌L",
    "\u0301abc",
    "ก็ ก่ำ",
    "\u1112\u1161\u11ab",
    "ö o\u0308 Ö O\u0308",
    "Å \u212b A\u030a",
    "\u0344 \u0958 \u2126",
    "नि\u200dक्\u200cष",
)
_CONTROL = (
    "\x00",
    "a\x00b",
    "\x01\x02\x03\x1b[31mred\x1b[0m",
    "\x7f\x80\x9f",
    "\u200b\u200c\u200d\ufeff",
    "\ufeffBOM",
    "a\u00adb\u2060c",
    "\u2028line\u2029para",
    "\x0b\x0c\x1c\x1d\x1e\x1f\x85",
    "\ufffd\ufffe\uffff",
    "\U0010ffff\U000e0001",
    "\ue000\uf8ff\U000f0000",
    "\b\a\v",
    "\ufff9a\ufffab\ufffb",
)
_BLANKS = (
    *("", " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\r\n\n", " \n", "\n "),
    *("\t \t", " \t\n\r", "a b", "a  b", "a   b", "a\tb", "a\t\tb", "a\nb", "a\n\nb", "a \n b"),
    *(" a", "  a", "a ", "a  ", "\na", "a\n", "\n\na\n\n", "a\r\nb\r\n", "    indented", "\tx = 1"),
    *("\u00a0", "a\u00a0b", "\u3000全角", "\u2003em", "a\u2009b", "\u1680x", " " * 17 + "x", " " * 128),
    *("\n" * 40, "\t" * 20 + "x", " x" * 30, " \n" * 20, "\n \n \n", "def f():\n\treturn  1\n"),
    *("trailing spaces   \nnext", "a\n   b\n\n\n  c", "\u2581", "a\u2581b", "\u2581\u2581 \u2581", "Ġ", "aĠb Ċ"),
)
_NUMBERS = (
    *("0", "1", "12", "123", "1234", "1234567890", "3.14159", "-1e-10", "1,000,000.00", "0x1F", "1_000"),
    *(" 1", "  1", "a1b2c3", "x  12  34", "\n\n7", "1\n2\n3", "٣٤٥ ١٢", "४२", "½ ² ³ ⅷ Ⅷ ①", "１２３", "𝟘𝟙"),
    *("2024-01-31T23:59:59Z", "192.168.0.1", "+49 (0)30/123", "9" * 100, "1 2  3   4    5", "v1.2.3-rc.4"),
)
_WORDS = (
    "a" * 300,
    "ab" * 500,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "x" * 65 + " " + "y" * 65,
    "https://example.com/a/b?c=d&e=%20f#g",
    "user@example.co.uk",
    "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case",
    "I'm you're they've we'll he'd it's don't 'tis O'Neil's",
    "I'M YOU'RE THEY'VE WE'LL HE'D IT'S",
    "'s't're've'm'll'd",
    "‘curly’ “quotes” … — – −",
    "C++ C# F# .NET a->b a::b a=>b !== === <<= >>> ??= ?.",
    "((((()))))[[[]]]{{{}}}",
    "!!!???...,,,;;;:::",
    "$100 €50 £20 ¥10 50% #tag @user ~/x ^_^ \\o/ |x| `code` *b*",
    '{"a": [1, 2.5, null, true], "b": {"c": "d\\n"}}',
    "<html><body class='x'>&amp;</body></html>",
    "SELECT * FROM t WHERE a='b';--",
    "#!/bin/sh\nfor i in $(seq 1 3); do\n\techo \"$i\"\ndone\n",
    "∀x∈ℝ: ⌈x⌉ ≥ x ∧ √2 ≈ 1.414 ⇒ ∫₀^∞",
    "─│┌┐└┘├┤ █▓▒░ ▲▼ ♠♥♦♣ ♩♪",
    "aAaAaA BbBbBb",
    "ﾊﾝｶｸ ｆｕｌｌ",
    "Ａ１！",
    "\\u0041 \\x41 \\n \\\\",
    "%s %d {} {0} {{x}} ${y}",
    "<" * 50,
    "=" * 80,
    "-" * 33 + ">",
    "ÿþýüû ÀÁÂÃ",
    "The quick brown fox jumps over the lazy dog.",
    "And\u0020then\u00a0there\u2007was\u202fspace",
    "word\u200bword",
    "a" + "\u0308" * 40,
)
SPECIAL_TEXTS = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "x<|im_end|>y"),
    *("<|im_start|><|im_start|>", "<|im_start|> ", " <|im_end|>", "<|im_end|>\n\n", "<|im_end", "im_end|>"),
    *("<|im_<|im_end|>end|>", "< |im_end| >", "<|IM_END|>", "<|im_end|", "|im_end|>", "<|im_end|>" * 5),
    *("<repo_name>", "<file_sep>a<filename>b", "<gh_stars>5", "<empty_output>", "<jupyter_code>x = 1"),
    *("<s>", "</s>", "<s>a</s>", "<unk>", "[INST] x [/INST]", "<<SYS>>\nx\n<</SYS>>", "<pad>", "<0x0A>"),
    *("<think>\nhm\n</think>\n\nok", "<tool_call>\n{}\n</tool_call>", "<tool_response>", "</tool_response>"),
    *("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<|vision_start|><|image_pad|><|vision_end|>"),
    *("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>user<|end_header_id|>\n\n", "<bos><eos>"),
)
HOSTILE: tuple[str, ...] = tuple(
    dict.fromkeys(
        (*_EMOJI, *_SCRIPTS, *_MARKS, *_CONTROL, *_BLANKS, *_NUMBERS, *_WORDS, *SPECIAL_TEXTS)
    )
)
