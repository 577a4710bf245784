use super::*;

fn form(name: &str) -> String {
    String::from_utf8(Folding::Lenient.form(name.as_bytes()).into_owned()).unwrap()
}

#[test]
fn names_that_differ_in_case_or_composition_have_one_form() {
    for (one, other) in [
        ("README.Txt", "readme.TXT"),
        ("stra\u{df}e", "STRASSE"),
        ("\u{c4}pfel", "a\u{308}pfel"),
        ("e\u{301}\u{323}", "E\u{323}\u{301}"),
        ("\u{ac00}", "\u{1100}\u{1161}"),
        ("\u{fb01}", "FI"),
        ("a\u{200d}b\u{feff}", "ab"),
        ("\u{3a3}", "\u{3c2}"),
        ("\u{13a0}", "\u{ab70}"),
    ] {
        assert_eq!(form(one), form(other), "{one} {other}");
    }
}

#[test]
fn other_names_keep_forms_of_their_own() {
    // The cases are the dotless i, an ignored character between two marks, and a letter of
    // Unicode 14 (U+2C2F).
    for (one, other) in
        [("I", "\u{131}"), ("q\u{301}\u{34f}\u{323}", "q\u{323}\u{301}"), ("\u{2c2f}", "\u{2c5f}")]
    {
        assert_ne!(form(one), form(other), "{one} {other}");
    }
    assert_eq!(Folding::None.form(b"A"), &b"A"[..]);
}

#[test]
fn a_name_that_is_not_utf_8_is_its_own_form_and_strictly_refused() {
    for name in [&b"A\xff"[..], b"\xed\xa0\x80A", b"\xc0\xafB"] {
        assert_eq!(Folding::Lenient.form(name), name);
        assert!(Folding::Lenient.permits(name) && !Folding::Strict.permits(name));
    }
    assert!(Folding::Strict.permits("\u{e9}".as_bytes()));
}

#[test]
fn the_tables_are_those_of_unicode_12_1() {
    let count = |ranges: &[(char, char)]| -> u32 {
        ranges.iter().map(|(start, end)| u32::from(*end) - u32::from(*start) + 1).sum()
    };
    assert_eq!(count(IGNORED), 4173);
    // The terms of the sum are the numbers of characters, control codes, code points for
    // private use, and noncharacters. Surrogates are left out, because no name in UTF-8
    // contains them.
    assert_eq!(count(ASSIGNED), 137_929 + 65 + 137_468 + 66);
    assert!(contains(ASSIGNED, '\u{32ff}') && !contains(ASSIGNED, '\u{1fa74}'));
}
