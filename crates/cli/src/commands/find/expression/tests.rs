use super::*;

fn parsed(line: &str) -> Result<Parsed, Failure> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    Parsed::new(&words, None)
}

#[test]
fn and_binds_more_tightly_than_or() {
    let print = || Tree::Print(Output::Line);
    let tree = |line: &str| parsed(line).unwrap().tree;
    assert_eq!(tree("a.img"), Tree::All(vec![Tree::Constant(true), print()]));
    let either =
        Tree::Any(vec![Tree::All(vec![Tree::Constant(true), Tree::Constant(false)]), Tree::Prune]);
    assert_eq!(tree("a.img -true -false -o -prune"), Tree::All(vec![either.clone(), print()]));
    assert_eq!(
        tree("a.img --true --and --false --or --prune"),
        tree("a.img ( -true -a -false ) -o -prune")
    );
    assert_eq!(
        tree("a.img ! -prune -o -print0"),
        Tree::Any(vec![Tree::Not(Box::new(Tree::Prune)), Tree::Print(Output::Nul)])
    );
    assert_eq!(parsed("a b:/c -maxdepth 2 -mindepth 1 -depth").unwrap().options.depths, 1..=2);
}

#[test]
fn expressions_that_end_early_are_refused() {
    for line in [
        "-name x",
        "a -o",
        "a !",
        "a ( -true",
        "a ) -true",
        "a -true )",
        "a --help",
        "a -offset x",
        "a -name",
        "a -true b",
        "a -nosuch",
        "a -maxdepth x",
        "a -type z",
        "a -size 1x",
        "a -perm 9",
        "a -exec rm",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
}
