use super::*;

fn unique(names: &[(&[u8], u32)], folding: Folding) -> Vec<String> {
    let kept = |(name, ino): &(&[u8], u32)| Kept {
        offset: 0,
        ino: Ino(*ino),
        name: permitted(name, folding),
        is_renamed: false,
    };
    let mut names: Vec<Kept> = names.iter().map(kept).collect();
    make_unique(names.iter_mut().collect(), HashSet::new(), folding);
    names.iter().map(|kept| kept.name.escape_ascii().to_string()).collect()
}

#[test]
fn the_entry_with_the_greatest_inode_number_keeps_the_name() {
    for folding in [Folding::None, Folding::Lenient, Folding::Strict] {
        // The results are those of e2fsck 1.47.0.
        assert_eq!(unique(&[(b"a", 14), (b"b", 15)], folding), ["a", "b"]);
        assert_eq!(unique(&[(b"a", 14), (b"a", 15)], folding), ["a~0", "a"]);
        assert_eq!(unique(&[(b"a", 16), (b"a", 15), (b"a", 14)], folding), ["a", "a~0", "a~1"]);
        assert_eq!(
            unique(&[(b"a", 14), (b"a~0", 16), (b"a~0", 17), (b"a", 15)], folding)[0],
            "a~1"
        );
        assert_eq!(unique(&[(b"118", 14), (b"118", 15)], folding), ["11~0", "118"]);
        assert_eq!(unique(&[(b"1234", 14), (b"1234", 15)], folding), ["12~0", "1234"]);
        assert_eq!(unique(&[(b"12345", 14), (b"12345", 15)], folding), ["12345~0", "12345"]);
        assert_eq!(unique(&[(b"a", 14), (b"a", 14)], folding), ["a", ""]);
    }
    assert_eq!(unique(&[(b"A", 14), (b"a", 15)], Folding::None), ["A", "a"]);
    assert_eq!(unique(&[(b"A", 14), (b"a", 15)], Folding::Lenient), ["A~0", "a"]);
    assert_eq!(unique(&[(".\u{200d}".as_bytes(), 14)], Folding::Lenient), [".\\xe2~0"]);
}

#[test]
fn many_equal_names_all_get_a_number_and_no_name_is_too_long() {
    for len in [1, 2, 3, 4, 252, 253, 254, 255] {
        let name = vec![b'x'; len];
        let names: Vec<(&[u8], u32)> = (0..2000).map(|n| (&name[..], n + 11)).collect();
        let unique = unique(&names, Folding::None);
        assert!(unique.iter().all(|name| (1..=255).contains(&name.len())), "{len}");
        assert_eq!(HashSet::<&String>::from_iter(&unique).len(), 2000, "{len}");
    }
}

#[test]
fn a_name_that_is_not_utf_8_gets_dots_where_names_are_strict() {
    assert_eq!(permitted(b"a\xffb", Folding::Lenient), b"a\xffb");
    assert_eq!(permitted(b"a\xffb\xed\xa0\x80", Folding::Strict), b"a.b...");
    // If the cut is inside a character, no part of this character is kept.
    let long = [b"x".repeat(253), "\u{e4}".into()].concat();
    assert_eq!(unique(&[(&long[..], 14), (&long[..], 15)], Folding::Strict)[0].len(), 255);
    let other = unique(&[(b"x\xc3\xa4", 14), (b"x\xc3\xa4", 15)], Folding::Strict);
    assert_eq!(other[0], "x.~0");
}
