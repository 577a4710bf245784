//! The attributes of a file as JSON.

use lanefs::{Attr, FileType, Time};
use lanefs_build::base64;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the names of the image and of the file `path` in it.
pub fn place_facts(image: &Path, path: &Path) -> Value {
    let mut facts = json!({ "image": image.to_string_lossy(), "path": path.to_string_lossy() });
    keep_bytes(&mut facts, "path", path.as_os_str().as_bytes());
    facts
}

/// Returns the attributes of the file `path` in `image`. A time is null if the inode has no room to
/// store it.
pub fn file_facts(image: &Path, path: &Path, attr: &Attr) -> Value {
    let mut facts = place_facts(image, path);
    facts["inode"] = json!(attr.ino.0);
    facts["generation"] = json!(attr.generation);
    facts["type"] = json!(type_letter(attr.file_type).to_string());
    facts["permissions"] = json!(format!("{:04o}", attr.permissions));
    facts["links"] = json!(attr.links);
    facts["uid"] = json!(attr.uid);
    facts["gid"] = json!(attr.gid);
    facts["size"] = json!(attr.size);
    facts["sectors"] = json!(attr.sectors);
    facts["device"] = json!([attr.rdev.major, attr.rdev.minor]);
    facts["flags"] = json!(attr.flags);
    facts["atime"] = time_facts(attr.atime);
    facts["mtime"] = time_facts(attr.mtime);
    facts["ctime"] = time_facts(attr.ctime);
    facts["crtime"] = json!(attr.crtime.map(time_facts));
    facts
}

/// If `bytes` are not UTF-8, adds them in base64 to `facts`, with `_bytes` appended to `key`. The
/// text under `key` itself then has a replacement character for each wrong byte.
pub fn keep_bytes(facts: &mut Value, key: &str, bytes: &[u8]) {
    if std::str::from_utf8(bytes).is_err() {
        facts[format!("{key}_bytes")] = json!(base64::encode(bytes));
    }
}

/// The types of files, with their letters in `find -type` and their names.
const TYPES: [(FileType, char, &str); 7] = [
    (FileType::Regular, 'f', "regular"),
    (FileType::Directory, 'd', "directory"),
    (FileType::Symlink, 'l', "symlink"),
    (FileType::BlockDevice, 'b', "block device"),
    (FileType::CharDevice, 'c', "character device"),
    (FileType::Fifo, 'p', "fifo"),
    (FileType::Socket, 's', "socket"),
];

/// Returns the letter of a type, as in `find -type`.
pub fn type_letter(file_type: FileType) -> char {
    TYPES.iter().find(|(known, ..)| *known == file_type).map_or('?', |(_, letter, _)| *letter)
}

/// Returns the name of a type.
pub fn type_name(file_type: FileType) -> &'static str {
    TYPES.iter().find(|(known, ..)| *known == file_type).map_or("unknown", |(.., name)| name)
}

/// Returns the type with this letter.
pub fn type_of_letter(text: &str) -> Option<FileType> {
    let is_it = |(_, letter, _): &&(FileType, char, &str)| text.chars().eq([*letter]);
    TYPES.iter().find(is_it).map(|(file_type, ..)| *file_type)
}

/// Replaces each `{NAME}` in `template` by the value of that name.
pub fn filled(template: &str, value: impl Fn(&str) -> String) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, named)) = rest.split_once('{')
        && let Some((name, after)) = named.split_once('}')
    {
        text.push_str(before);
        text.push_str(&value(name));
        rest = after;
    }
    text + rest
}

fn time_facts(time: Time) -> Value {
    json!({ "secs": time.secs, "nanos": time.nanos })
}
