"""Scripts of characters, by the numbers of ICU's enumeration UScriptCode.

RE2 has the script of each character; a set of RE2 expressions finds the script of a character.
"""

from __future__ import annotations

import functools
from typing import Any

from headrace.memo import cached

UNKNOWN = 103  # of what no script has
NONE = -1  # of what is no character

# The names RE2 has, in the order of their numbers; a number says that there is a gap before it.
_NAMES = """
    Common Inherited Arabic Armenian Bengali Bopomofo Cherokee Coptic Cyrillic Deseret Devanagari Ethiopic Georgian
    Gothic Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian
    Myanmar Ogham Old_Italic Oriya Runic Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Canadian_Aboriginal Yi
    Tagalog Hanunoo Buhid Tagbanwa Braille Cypriot Limbu Linear_B Osmanya Shavian Tai_Le Ugaritic 55 Buginese
    Glagolitic Kharoshthi Syloti_Nagri New_Tai_Lue Tifinagh Old_Persian Balinese Batak 65 Brahmi Cham 71
    Egyptian_Hieroglyphs 75 Pahawh_Hmong Old_Hungarian 78 Javanese Kayah_Li 82 Lepcha Linear_A Mandaic 86
    Meroitic_Hieroglyphs Nko Old_Turkic Old_Permic Phags_Pa Phoenician Miao 99 Vai 101 Cuneiform 104 Carian 106
    Tai_Tham Lycian Lydian Ol_Chiki Rejang Saurashtra SignWriting Sundanese 115 Meetei_Mayek Imperial_Aramaic
    Avestan Chakma 120 Kaithi Manichaean Inscriptional_Pahlavi Psalter_Pahlavi 125 Inscriptional_Parthian Samaritan
    Tai_Viet 130 Bamum Lisu 133 Old_South_Arabian Bassa_Vah Duployan Elbasan Grantha 140 Mende_Kikakui
    Meroitic_Cursive Old_North_Arabian Nabataean Palmyrene Khudawadi Warang_Citi 149 Mro Nushu Sharada Sora_Sompeng
    Takri Tangut 156 Anatolian_Hieroglyphs Khojki Tirhuta Caucasian_Albanian Mahajani Ahom Hatran Modi Multani
    Pau_Cin_Hau Siddham Adlam Bhaiksuki Marchen Newa Osage 175 Masaram_Gondi Soyombo Zanabazar_Square Dogra
    Gunjala_Gondi Makasar Medefaidrin Hanifi_Rohingya Sogdian Old_Sogdian Elymaic Nyiakeng_Puachue_Hmong Nandinagari
    Wancho Chorasmian Dives_Akuru Khitan_Small_Script Yezidi Cypro_Minoan Old_Uyghur Tangsa Toto Vithkuqi Kawi
    Nag_Mundari
"""


def _numbered() -> dict[str, int]:
    out, number = {}, 0
    for word in _NAMES.split():
        if word.isdigit():
            number = int(word)
        else:
            out[word] = number
            number += 1
    return out


@functools.cache
def _expressions() -> tuple[Any, list[int]]:
    """The set of RE2, and the numbers of the scripts in it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 2**27
    scripts, numbers = re2.Set.FullMatchSet(options), []
    for name, number in _numbered().items():
        scripts.Add(rf"\p{{{name}}}")
        numbers.append(number)
    scripts.Compile()
    return scripts, numbers


@cached(2**16, "scripts of code points")
def script_of(point: int) -> int:
    """The number of the script of a code point."""
    if not 0 <= point <= 0x10FFFF:
        return NONE
    if 0xD800 <= point <= 0xDFFF:
        return UNKNOWN
    scripts, numbers = _expressions()
    found = scripts.Match(chr(point).encode())
    return numbers[found[0]] if found else UNKNOWN
