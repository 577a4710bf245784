//! The attributes of a file as JSON.

use lanefs::build::base64;
use lanefs::{Attr, FileType, Time};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the attributes of the file `path` in `image`. A time is null if the inode has no room to
/// store it.
pub fn file_facts(image: &Path, path: &Path, attr: &Attr) -> Value {
    let mut facts = json!({
        "image": image.to_string_lossy(),
        "path": path.to_string_lossy(),
        "inode": attr.ino.0,
        "generation": attr.generation,
        "type": type_letter(attr.file_type).to_string(),
        "permissions": format!("{:04o}", attr.permissions),
        "links": attr.links,
        "uid": attr.uid,
        "gid": attr.gid,
        "size": attr.size,
        "sectors": attr.sectors,
        "device": [attr.rdev.major, attr.rdev.minor],
        "flags": attr.flags,
        "atime": time_facts(attr.atime),
        "mtime": time_facts(attr.mtime),
        "ctime": time_facts(attr.ctime),
        "crtime": attr.crtime.map(time_facts),
    });
    keep_bytes(&mut facts, "path", path.as_os_str().as_bytes());
    facts
}

/// If `bytes` are not UTF-8, adds them in base64 to `facts`, with `_bytes` appended to `key`. The
/// text under `key` itself then has a replacement character for each wrong byte.
pub fn keep_bytes(facts: &mut Value, key: &str, bytes: &[u8]) {
    if std::str::from_utf8(bytes).is_err() {
        facts[format!("{key}_bytes")] = json!(base64::encode(bytes));
    }
}

/// Returns the letter of a type, as in `find -type`.
pub fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::BlockDevice => 'b',
        FileType::CharDevice => 'c',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

fn time_facts(time: Time) -> Value {
    json!({ "secs": time.secs, "nanos": time.nanos })
}
