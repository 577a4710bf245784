//! Tests of `source.rs`.

use super::*;

fn parse(name: &str) -> Option<Source> {
    Source::parse(OsStr::new(name))
}

#[test]
fn members_are_given_in_a_list() {
    let members = Named::These(vec!["a.img".into(), "/dev/sdb".into()]);
    assert_eq!(parse("md:a.img,missing,/dev/sdb"), Some(Source { members, absent: 1 }));
    assert_eq!(parse("a.img"), None);
}

#[test]
fn a_backslash_makes_commas_and_colons_part_of_a_name() {
    let members = Named::These(vec!["a,b".into(), "c\\d:/e".into(), "f\\".into()]);
    let parsed = parse(r"md:a\,b,c\\d\:/e,f\");
    assert_eq!(parsed, Some(Source { members, absent: 0 }));
    let names = ["a,b", "c\\d:/e", "f\\"].map(Path::new);
    assert_eq!(parsed, Source::parse(&Source::name_of(names)));
    assert_eq!(parse(r"md:a\b,c"), parse(r"md:a\\b,c"));
}

#[test]
fn a_member_without_a_name_is_refused() {
    for name in ["md:a,,b", "md:,a", "md:a,"] {
        let error = parse(name).expect("an array").candidates(Access::ReadOnly);
        assert!(error.expect_err("refused").to_string().contains("no name"), "{name}");
    }
    assert!(matches!(
        parse("md:").expect("an array").open(ArrayOptions::new(Access::ReadOnly)),
        Err(AssembleError::Nothing)
    ));
}

#[test]
fn an_array_is_given_by_its_uuid_and_where_to_look() {
    let set = Uuid([0x11; 16]);
    let members = Named::Scan { set, places: vec!["/srv".into()] };
    let name = format!("md:{set},/srv,missing");
    assert_eq!(parse(&name), Some(Source { members, absent: 1 }));
    let members = Named::Scan { set, places: vec![] };
    assert_eq!(parse(&format!("md:{set}")), Some(Source { members, absent: 0 }));
}
