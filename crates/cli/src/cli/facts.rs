//! The attributes of a file as JSON, and the text forms of getfattr(1) and getfacl(1).

use crate::cli::Failure;
use lanefs::{Attr, FileType, Time};
use lanefs_build::{base64, unescape};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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

/// Encodes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits; spaces are ignored.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|letter| !letter.is_ascii_whitespace())
        .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
        .collect();
    match digits?.as_chunks() {
        (pairs, []) => Some(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => None,
    }
}

/// Replaces the backslash, and bytes that would end a line or a quoted text, by `\` and three octal
/// digits.
pub fn quoted(bytes: &[u8], special: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' | b'\r' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            byte if special.contains(byte) => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(*byte),
        }
    }
    text
}

/// Decodes the output of [`quoted`]. A backslash and a character that is not an octal digit
/// together mean that character.
pub fn unquoted(text: &[u8]) -> Vec<u8> {
    unescape(text, |letter| letter.or(Some(b'\\'))).unwrap_or_default()
}

/// The lines of the dump that describe one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The path, as it is written in the dump.
    pub path: PathBuf,
    /// All comments except the path, such as `owner: 0`.
    pub comments: Vec<String>,
    /// The lines that are not comments.
    pub lines: Vec<Vec<u8>>,
}

/// Reads the blocks of the dump `file`, or of standard input if the name is `-`.
pub fn read_blocks(file: &Path) -> Result<Vec<Block>, Failure> {
    let input: Box<dyn BufRead> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(file).map_err(Failure::on_host(file))?)),
    };
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in (1..).zip(input.split(b'\n')) {
        let line = line.map_err(Failure::on_host(file))?;
        if let Some(path) = line.strip_prefix(b"# file: ") {
            let path = OsString::from_vec(unquoted(path)).into();
            blocks.push(Block { path, comments: Vec::new(), lines: Vec::new() });
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let place = || format!("{}: line {number}", file.display());
        let block = blocks.last_mut();
        let block = block.ok_or_else(|| Failure::new(place(), "no '# file:' line before it"))?;
        match line.strip_prefix(b"# ") {
            Some(comment) => block.comments.push(String::from_utf8_lossy(comment).into_owned()),
            None => block.lines.push(line),
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_back() {
        for text in ["", "a", "ab", "abc", "hello\0\u{e9}"] {
            let bytes = text.as_bytes();
            assert_eq!(from_hex(&hex(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("00 ff"), Some(vec![0, 255]));
    }

    #[test]
    fn quoted_text_is_read_back() {
        for bytes in [&b"a b"[..], b"a\nb\\c\r", b"\"\0\x01", b"\\012"] {
            assert_eq!(unquoted(&quoted(bytes, b"\"\0")), bytes);
        }
        assert_eq!(unquoted(b"a\\"), b"a\\");
        assert_eq!(unquoted(br#"a\"b"#), b"a\"b");
        assert_eq!(unquoted(br"\+12\400"), b"+12400");
    }
}
