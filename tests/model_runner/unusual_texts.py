"""Texts that try a tokenizer, from a generator of random numbers. Characters are old ones: libraries of
different age classify new ones differently."""
import unicodedata

def known(first, last):
    """Characters of a range that Unicode 3.2 has: every Python carries its tables."""
    return [chr(c) for c in range(first, last)
            if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]


WORDS = ("the of and to in is was for on that with as by at from his were are which this be had not "
         "first new one their two also after who its time over years most people many world school "
         "Quire cache I'll we've don't he's I'm they're she'd IT'S you'Re can't o'clock naïve Straße "
         "fi\u017f'\u017f HTTP foo_bar x=y() https://a.b/c?d=e#f C++20 e.g. U.S.A. 3.14 1,000,000 "
         "-42 0x7fff 12:30 2024-09-17 3rd 50% $9.99 @home #tag a/b \\n {} [0] <b> && || ... !? -- "
         "<|im_start|> <|im_end|> <|endoftext|>").split(" ")

SCRIPTS = {
    "latin": known(0xC0, 0x250), "greek": known(0x370, 0x400), "cyrillic": known(0x400, 0x500),
    "hebrew": known(0x5B0, 0x5F5), "arabic": known(0x620, 0x6FF), "devanagari": known(0x900, 0x980),
    "bengali": known(0x985, 0x9FC), "thai": known(0xE01, 0xE5C), "tibetan": known(0xF00, 0xFD0),
    "hangul": known(0xAC00, 0xD7A4), "jamo": known(0x1100, 0x1200), "kana": known(0x3041, 0x3100),
    "han": known(0x4E00, 0x9FA6), "han_b": known(0x20000, 0x20800), "ethiopic": known(0x1200, 0x1380),
    "mathematical": known(0x1D400, 0x1D800), "gothic": known(0x10330, 0x1034B),
    "fullwidth": known(0xFF01, 0xFFDD),
}
NUMBERS = [chr(c) for c in range(0x80, 0x1E000)
           if unicodedata.ucd_3_2_0.category(chr(c)) in ("Nd", "Nl", "No")] + list("𞥐𞥙𐴰𖭐𑁦𐡘")
MARKS = known(0x300, 0x370) + known(0x20D0, 0x20F1) + ["\u0903", "\u094D", "\u0E31", "\uFE0F", "\u3099"]
SPACES = [" ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e", "\u2000",
          "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff"]
CONTROLS = [chr(c) for c in range(0x20)] + ["\x7f", "\x80", "\x9f", "\xad", "\u200c", "\u200d",
            "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\ufff9", "\ufffd", "\uffff", "\U0010ffff"]
SYMBOLS = known(0x2010, 0x2028) + known(0x20A0, 0x20C0) + known(0x2190, 0x2400) + known(0x2500, 0x27C0)
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵", "1️⃣", "❤️", "👩🏿‍🚀", "🧑‍🤝‍🧑", "☃", "🤷🏻‍♀️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
PLANES = ["\U000e0001", "\U000f0000", "\U00040000", "\U0005ffff", "\U00080000", "\ue000", "\u0378"]


def part(rng):
    """One ingredient of a text."""
    kind = rng.randrange(14)
    if kind < 4:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
    if kind == 4:
        return "".join(rng.choices(SCRIPTS[rng.choice(sorted(SCRIPTS))], k=rng.randint(1, 6)))
    if kind == 5:
        return "".join(rng.choices(NUMBERS, k=rng.randint(1, 3)))
    if kind == 6:
        return "".join(rng.choice("aeoncZ") + "".join(rng.choices(MARKS, k=rng.randint(1, 2)))
                       for _ in range(rng.randint(1, 3)))
    if kind == 7:
        return rng.choice(SPACES) * rng.choice((1, 1, 2, 3, 7, 40))
    if kind == 8:
        return "".join(rng.choices(SPACES, k=rng.randint(1, 4)))
    if kind == 9:
        return "".join(rng.choices(CONTROLS, k=rng.randint(1, 3)))
    if kind == 10:
        return "".join(rng.choices(SYMBOLS, k=rng.randint(1, 4)))
    if kind == 11:
        return "".join(rng.choices(EMOJI, k=rng.randint(1, 2)))
    if kind == 12:
        return str(rng.randrange(10 ** rng.randint(1, 9)))
    return rng.choice(PLANES + ["'s", "'T", "'rE", "'\u017f", "''ll", "'", '"', "_", "¿", "½", "Ⅷ", "ª"])


def texts(rng, count):
    found = ["", " ", "  ", "\n", "a", " a", "  a", "0", "00", " 0", "a0 1b", "\u180e", "\x85", "\u200b a"]
    while len(found) < count:
        glue = rng.choice(("", "", " "))
        found.append(glue.join(part(rng) for _ in range(rng.randint(1, 5))))
    return found[:count]
