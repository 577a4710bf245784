use super::*;

fn operand(text: &str) -> Operand {
    Operand::from(OsString::from(text))
}

fn place(image: &str, path: &str) -> ImagePath {
    ImagePath { image: image.into(), path: path.into() }
}

#[test]
fn the_first_colon_before_a_slash_splits() {
    assert_eq!(operand("a.img:/b"), Operand::Image(place("a.img", "/b")));
    assert_eq!(operand("/x/a.img:/b:/c"), Operand::Image(place("/x/a.img", "/b:/c")));
    assert_eq!(operand("a:b.img:/c"), Operand::Image(place("a:b.img", "/c")));
}

#[test]
fn a_trailing_colon_is_the_root() {
    assert_eq!(operand("a.img:"), Operand::Image(place("a.img", "/")));
    assert_eq!(operand("a.img:/"), Operand::Image(place("a.img", "/")));
}

#[test]
fn the_colons_of_an_array_belong_to_its_name() {
    let array = "md:/dev/sda,/dev/sdb,missing";
    assert_eq!(operand(&format!("{array}:/a")), Operand::Image(place(array, "/a")));
    assert_eq!(operand("md:a,b,c:"), Operand::Image(place("md:a,b,c", "/")));
    let array = "md:11111111:22222222:33333333:44444444,/srv";
    assert_eq!(operand(&format!("{array}:/a")), Operand::Image(place(array, "/a")));
    assert_eq!(ImagePath::from(OsString::from("md:/a,/b,/c")), place("md:/a,/b,/c", "/"));
    let array = r"md:a\:/x,b\:,c\,d";
    assert_eq!(operand(&format!("{array}:/f")), Operand::Image(place(array, "/f")));
    assert_eq!(operand(r"md:a,b,c\:"), Operand::Host(r"md:a,b,c\:".into()));
}

#[test]
fn the_scheme_and_the_port_of_a_uri_belong_to_its_name() {
    for name in [
        "nbd://host/disk",
        "nbd://host:10809/disk@2",
        "nbd://[::1]:5/",
        "nbd+unix:///e?socket=/run/s&x-timeout=5",
    ] {
        assert_eq!(operand(&format!("{name}:/a")), Operand::Image(place(name, "/a")));
        assert_eq!(operand(&format!("{name}:")), Operand::Image(place(name, "/")));
        assert_eq!(ImagePath::from(OsString::from(name)), place(name, "/"));
        assert!(operand(&format!("./{name}:/a")).is_escaped());
    }
}

#[test]
fn a_dot_and_a_slash_escape() {
    assert_eq!(operand("./x:/y"), Operand::Host("./x:/y".into()));
    assert!(operand("./x:/y").is_escaped() && !operand("./x").is_escaped());
    assert_eq!(operand("../x:/y"), Operand::Image(place("../x", "/y")));
}

#[test]
fn the_rest_is_of_the_host() {
    for text in ["a", "/a/b", "a:b", ":", ":/a"] {
        assert_eq!(operand(text), Operand::Host(text.into()), "{text}");
    }
    assert_eq!(operand("-"), Operand::Standard);
}

#[test]
fn an_operand_that_must_be_in_an_image_is_its_root() {
    assert_eq!(ImagePath::from(OsString::from("a.img")), place("a.img", "/"));
    assert_eq!(ImagePath::from(OsString::from("./a.img:/b")), place("./a.img", "/b"));
}
