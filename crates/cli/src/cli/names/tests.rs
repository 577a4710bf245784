use super::*;

#[test]
fn the_number_that_means_no_change_names_no_user() {
    assert_eq!(parse_id("4294967294"), Some(u32::MAX - 1));
    for text in ["4294967295", "4294967296", "-1", "ann", ""] {
        assert_eq!(parse_id(text), None, "{text}");
    }
}

fn sample() -> UserNames {
    let passwd = "root:x:0:0::/root:/bin/sh\nbad line\nann:x:1000:100::/:\nroot2:x:0:0\n";
    let users = Some(parse(passwd));
    UserNames { users, groups: Some(parse("wheel:x:10:ann\n")) }
}

#[test]
fn the_images_own_names_are_used() {
    let names = sample();
    assert_eq!(names.user(0), "root");
    assert_eq!(names.uid("ann"), Ok(1000));
    assert_eq!(names.group(10), "wheel");
    assert_eq!(names.gid("wheel"), Ok(10));
}

#[test]
fn numbers_stand_for_themselves() {
    let names = sample();
    assert_eq!(names.user(77), "77");
    assert_eq!(names.uid("77"), Ok(77));
    assert!(names.uid("bob").is_err());
    assert!(names.uid("-1").is_err());
}

#[test]
fn either_part_may_be_missing() {
    let ids = |text: &str| text.parse::<OwnerChange>().unwrap().resolve(&sample());
    assert_eq!(ids("ann"), Ok((Some(1000), None)));
    assert_eq!(ids("ann:wheel"), Ok((Some(1000), Some(10))));
    assert_eq!(ids(":10"), Ok((None, Some(10))));
    assert_eq!(ids(":"), Ok((None, None)));
    assert_eq!(ids(""), Ok((None, None)));
    // The login group of a user, which a number has not.
    assert_eq!(ids("ann:"), Ok((Some(1000), Some(100))));
    assert!(ids("1000:").is_err());
}
