//! Compares what the library exports, and the methods of its own types, with the list in
//! `face.txt`, so that nothing comes or goes unnoticed. A change of the list is a change for users:
//! it needs a line in `CHANGELOG.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns what the `pub use` items of a `lib.rs` export, with the module: `device::Device`. A
/// `pub mod` is a module of named items; a crate or a module of another crate is no item.
fn exported(lib: &str) -> Vec<String> {
    let code: Vec<&str> = lib.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let (code, mut module, mut found) = (code.join("\n"), "", Vec::new());
    let mut rest = &*code;
    while let Some(at) = ["pub mod ", "pub use ", "\n}"].iter().filter_map(|p| rest.find(p)).min() {
        rest = &rest[at..];
        let item = &rest[..rest.find(['{', ';']).map_or(rest.len(), |end| end + 1)];
        if let Some(name) = item.strip_prefix("pub mod ") {
            module = name.trim_end_matches([' ', '{', ';']);
            assert!(item.ends_with('{'), "a module that is not written here: {module}");
        } else if let Some(item) = rest.strip_prefix("pub use ") {
            let item = &item[..item.find(';').expect("an end")];
            let (_, names) =
                item.rsplit_once("::{").or(item.rsplit_once("::")).unwrap_or(("", item));
            for name in names.trim_end_matches('}').split(',').map(str::trim) {
                let name = name.rsplit(" as ").next().unwrap_or(name);
                let is_item = name.starts_with(char::is_uppercase)
                    || ["", "file_of", "forward", "is_uri"].contains(&name);
                assert!(is_item, "a crate, a module, or all of one: pub use {item}");
                let path = if module.is_empty() { name } else { &format!("{module}::{name}") };
                found.extend((!name.is_empty()).then(|| path.to_owned()));
            }
        } else {
            module = "";
        }
        rest = &rest[1..];
    }
    found
}

/// Returns the public methods that a source file gives to types: `FileSystem::open`.
fn methods(source: &str) -> Vec<String> {
    let (mut of, mut found) = ("", Vec::new());
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("impl ") {
            of = name.split([' ', '<']).next().unwrap_or_default();
        }
        let name = line.strip_prefix("    pub fn ").and_then(|line| line.split(['(', '<']).next());
        found.extend(name.map(|name| format!("{of}::{name}")));
    }
    found
}

#[test]
fn the_face_of_the_library_is_as_listed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut face = BTreeSet::new();
    for entry in fs::read_dir(here.join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue; // tests
        }
        let text = fs::read_to_string(&path).unwrap();
        match path.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs") => face.extend(exported(&text)),
            Some("host.rs" | "mounted.rs" | "remove.rs") => {} // of this crate alone
            _ => face.extend(methods(&text)),
        }
    }
    let mkfs = fs::read_to_string(here.join("../mkfs/src/options.rs")).unwrap();
    let mkfs = methods(&mkfs).into_iter().filter_map(|name| {
        name.strip_prefix("MkfsOptions::").map(|name| format!("FormatOptions::{name}"))
    });
    face.extend(mkfs);
    let list = here.join("tests/face.txt");
    let listed: BTreeSet<String> =
        fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    let new: Vec<_> = face.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&face).collect();
    assert!(new.is_empty() && gone.is_empty(), "not in face.txt: {new:#?}\ngone: {gone:#?}");
}

#[test]
fn what_a_source_exports_is_found() {
    let lib = "pub use file::File;\n/// pub use no::Comment;\npub use a::b::{\n    Error as E4, Rdev,\n};\n\
               pub mod device {\n    pub use lanefs_device::{Access, Device};\n}\npub use x::After;\n";
    assert_eq!(exported(lib), ["File", "E4", "Rdev", "device::Access", "device::Device", "After"]);
    let source = "impl File {\n    pub fn open(&self) {}\n    fn hidden() {}\n}\n\
                  impl Read for &File {\n    fn read() {}\n}\nimpl X<'_> {\n    pub fn y<T>() {}\n";
    assert_eq!(methods(source), ["File::open", "X::y"]);
}

#[test]
#[should_panic(expected = "a crate, a module")]
fn a_crate_as_a_module_is_refused() {
    exported("pub use lanefs_raid5 as raid5;\n");
}
