//! The attributes of a file as JSON.

use lanefs::{Attr, FileType, Time};
use serde_json::{Value, json};
use std::path::Path;

/// Returns the attributes of the file `path` in `image`. A time is null if the inode has no room to
/// store it.
pub fn file_facts(image: &Path, path: &Path, attr: &Attr) -> Value {
    json!({
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
    })
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
