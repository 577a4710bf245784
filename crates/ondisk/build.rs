//! Generates two tables of Unicode 12.1 for comparing names without regard to case: the assigned
//! code points, and the ignored code points. The tables are made from the data in `regex_syntax`,
//! which are those of a later version of Unicode. This is possible because a code point that
//! version 12.1 assigns keeps these two properties in all later versions.

use regex_syntax::hir::{Class, HirKind};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut text = table("ASSIGNED", r"\p{age=12.1}")?;
    // Some code points that no version has assigned are ignored too.
    let ignored = r"[\p{Default_Ignorable_Code_Point}&&[\p{age=12.1}\p{Unassigned}]]";
    text += &table("IGNORED", ignored)?;
    let folder = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    Ok(std::fs::write(Path::new(&folder).join("unicode_12_1.rs"), text)?)
}

/// Returns the source text of a constant. The constant has the ranges of a class of characters, in
/// ascending order.
fn table(name: &str, class: &str) -> Result<String, Box<dyn Error>> {
    let hir = regex_syntax::parse(class).map_err(|error| error.to_string())?;
    let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
        return Err("not a class of characters".into());
    };
    let mut text = format!("const {name}: &[(char, char)] = &[\n");
    for range in class.ranges() {
        let (start, end) = (u32::from(range.start()), u32::from(range.end()));
        writeln!(text, "    ('\\u{{{start:x}}}', '\\u{{{end:x}}}'),")?;
    }
    Ok(text + "];\n")
}
