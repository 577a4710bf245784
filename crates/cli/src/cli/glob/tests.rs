use super::*;

#[track_caller]
fn check(pattern: &str, matching: &[&[u8]], other: &[&[u8]]) {
    let glob = Glob::new(pattern.as_bytes(), Case::Differs);
    for text in matching {
        assert!(glob.matches(text, Case::Differs), "{pattern} {text:?}");
    }
    for text in other {
        assert!(!glob.matches(text, Case::Differs), "{pattern} {text:?}");
    }
}

#[test]
fn patterns_match_as_in_the_shell() {
    check("*.c", &[b"a.c", b".c", b"a.b.c", b"x/y.c"], &[b"a.h", b"a.c.h", b""]);
    check("a?c", &[b"abc", "a\u{e9}c".as_bytes(), b"a\xffc"], &[b"ac", b"abbc"]);
    check("[a-c]x", &[b"ax", b"cx"], &[b"dx", b"x", b"-x"]);
    check("[!a-c]x", &[b"dx", b"-x"], &[b"ax"]);
    check("[]a]", &[b"]", b"a"], &[b"b"]);
    check("[a-]", &[b"a", b"-"], &[b"b"]);
    check("[a", &[b"[a"], &[b"a"]);
    check(r"\*", &[b"*"], &[b"a"]);
    check(r"[\]]", &[b"]"], &[b"\\"]);
    check("a*b*c", &[b"abc", b"axxbxxc", b"abcbc"], &[b"acb", b"ab"]);
    check("[[:alpha:]-]", &[b"a", b"Z", "\u{e9}".as_bytes(), b"-"], &[b"5", b"_", b"\xff"]);
    check("[[:digit:]_]x", &[b"5x", b"_x"], &[b"ax", b"x", b":x"]);
    check("[![:space:]]", &[b"a"], &[b" ", b"\t", b""]);
    check("[[=b=]]", &[b"b"], &[b"="]);
    check("[a-[.c.]]", &[b"b", b"c"], &[b"d", b"."]);
    // Classes that do not exist, and brackets that only look like classes, as in find(1).
    check("[[:nope:]a]", &[], &[b"a", b":"]);
    check("[![:nope:]]", &[], &[b"a"]);
    check("[[:alpha:a]", &[b"a", b":", b"["], &[b"b"]);
    check("", &[b""], &[b"a"]);
    check("*", &[b"", b"a"], &[]);
}

#[test]
fn case_is_ignored_on_request() {
    let glob = Glob::new("*.JP[EF]G".as_bytes(), Case::Ignored);
    assert!(glob.matches(b"a.jpeg", Case::Ignored));
    assert!(!glob.matches(b"a.jpg", Case::Ignored));
    let glob = Glob::new(b"[[:upper:]]x", Case::Ignored);
    assert!(glob.matches(b"AX", Case::Ignored));
    assert!(!glob.matches(b"ax", Case::Ignored));
}

#[test]
fn many_stars_take_no_exponential_time() {
    let glob = Glob::new("a*".repeat(50).as_bytes(), Case::Differs);
    assert!(!glob.matches(&[b"a".repeat(49), b"b".repeat(5000)].concat(), Case::Differs));
}
