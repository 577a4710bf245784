//! The commands of a script.

use crate::cli::{Failure, OutputFile, parse_id, parse_size};
use lanefs::{FileOptions, FileSystem, MasterKey, NewVerity};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The smallest and the largest number of bytes that are copied at once.
const LEAST_BUFFERED: usize = 8 << 10;
const MOST_BUFFERED: usize = 1 << 20;

/// The error of a command.
pub enum Error {
    /// The error concerns a path in the image.
    Image(lanefs::Error),
    /// The error concerns a path of the host.
    Host(String, std::io::Error),
}

impl From<lanefs::Error> for Error {
    fn from(error: lanefs::Error) -> Error {
        Error::Image(error)
    }
}

/// A command with its line number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    number: usize,
    command: Command,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    Put { host: PathBuf, path: PathBuf },
    Get { path: PathBuf, host: PathBuf },
    Write { path: PathBuf, text: Vec<u8> },
    Append { path: PathBuf, text: Vec<u8> },
    Mkdir { path: PathBuf, parents: bool },
    Remove { path: PathBuf, tree: bool, force: bool },
    Move { from: PathBuf, to: PathBuf },
    Link { target: PathBuf, path: PathBuf, symbolic: bool },
    Chmod { permissions: u16, path: PathBuf },
    Chown { uid: Option<u32>, gid: Option<u32>, path: PathBuf },
    Truncate { path: PathBuf, size: u64 },
    SetXattr { name: String, value: Vec<u8>, path: PathBuf },
    Encrypt { path: PathBuf },
    Verity { path: PathBuf },
}

impl Line {
    /// Parses a line; `None` for an empty line or a comment.
    pub fn parse(text: &str) -> Result<Option<Line>, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let words = match text.starts_with('[') {
            true => serde_json::from_str::<Vec<String>>(text)
                .map_err(|error| format!("not a JSON list of words: {error}"))?,
            false => split(text)?,
        };
        let command = Command::parse(&words)?;
        Ok(Some(Line { number: 0, command }))
    }

    pub fn numbered(self, number: usize) -> Line {
        Line { number, ..self }
    }

    /// Returns the failure with the number of this line.
    pub fn failure(&self, failure: Failure) -> Failure {
        Failure::new(format_args!("line {}", self.number), failure)
    }

    /// Returns the file of the host that this line writes.
    pub fn writes_to(&self) -> Option<&Path> {
        match &self.command {
            Command::Get { host, .. } => Some(host),
            _ => None,
        }
    }

    /// Runs the command. `keys` are the master keys of the file system. `outputs` gets the files
    /// of the host that replace earlier ones if the whole script succeeds.
    pub fn run(
        &self,
        fs: &FileSystem,
        keys: &[MasterKey],
        outputs: &mut Vec<(PathBuf, OutputFile)>,
    ) -> Result<(), Error> {
        match &self.command {
            Command::Put { host, path } => put(fs, host, path, outputs),
            Command::Get { path, host } => {
                outputs.push((host.clone(), get(fs, path, host)?));
                Ok(())
            }
            Command::Write { path, text } => Ok(fs.write(path, text)?),
            Command::Append { path, text } => append(fs, path, text),
            Command::Mkdir { path, parents: true } => Ok(fs.create_dir_all(path)?),
            Command::Mkdir { path, parents: false } => Ok(fs.create_dir(path)?),
            Command::Remove { path, tree, force } => {
                let removed = if *tree { fs.remove_dir_all(path) } else { fs.remove_file(path) };
                match removed {
                    Err(error) if *force && error.is_not_found() => Ok(()),
                    removed => Ok(removed?),
                }
            }
            Command::Move { from, to } => Ok(fs.rename(from, to)?),
            Command::Link { target, path, symbolic: true } => Ok(fs.symlink(target, path)?),
            Command::Link { target, path, symbolic: false } => Ok(fs.hard_link(target, path)?),
            Command::Chmod { permissions, path } => Ok(fs.set_permissions(path, *permissions)?),
            Command::Chown { uid, gid, path } => Ok(fs.set_owner(path, *uid, *gid)?),
            Command::Truncate { path, size } => {
                let file = fs.open_file_with(path, &FileOptions::new().write().create())?;
                Ok(file.set_len(*size)?)
            }
            Command::SetXattr { name, value, path } => Ok(fs.set_xattr(path, name, value)?),
            Command::Verity { path } => {
                fs.enable_verity(path, &NewVerity::default())?;
                Ok(())
            }
            Command::Encrypt { path } => {
                let no_key = || std::io::Error::other("give the key by --key");
                let key = keys.first().ok_or_else(no_key);
                let key = key.map_err(|error| Error::Host("encrypt".into(), error))?;
                Ok(fs.encrypt_dir(path, key)?)
            }
        }
    }
}

impl Command {
    fn parse(words: &[String]) -> Result<Command, String> {
        let (name, rest) = words.split_first().ok_or("an empty list")?;
        let has = |flag: &str| rest.iter().any(|word| word == flag);
        let flags: &[&str] = match name.as_str() {
            "mkdir" => &["-p"],
            "rm" => &["-r", "-f", "-rf"],
            "ln" => &["-s"],
            _ => &[],
        };
        let operands: Vec<&str> =
            rest.iter().map(String::as_str).filter(|word| !flags.contains(word)).collect();
        let path = |text: &str| PathBuf::from(text);
        Ok(match (name.as_str(), operands.as_slice()) {
            ("put", [host, to]) => Command::Put { host: path(host), path: path(to) },
            ("get", [from, host]) => Command::Get { path: path(from), host: path(host) },
            ("write", [to, text]) => {
                Command::Write { path: path(to), text: text.as_bytes().into() }
            }
            ("append", [to, text]) => {
                Command::Append { path: path(to), text: text.as_bytes().into() }
            }
            ("mkdir", [to]) => Command::Mkdir { path: path(to), parents: has("-p") },
            ("rm", [from]) => Command::Remove {
                path: path(from),
                tree: has("-r") || has("-rf"),
                force: has("-f") || has("-rf"),
            },
            ("mv", [from, to]) => Command::Move { from: path(from), to: path(to) },
            ("ln", [target, to]) => {
                Command::Link { target: path(target), path: path(to), symbolic: has("-s") }
            }
            ("chmod", [mode, of]) => {
                let permissions = u16::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
                let permissions =
                    permissions.ok_or_else(|| format!("'{mode}' is no octal mode"))?;
                Command::Chmod { permissions, path: path(of) }
            }
            ("chown", [owner, of]) => {
                let (uid, gid) = parse_owner(owner)?;
                Command::Chown { uid, gid, path: path(of) }
            }
            ("truncate", [of, size]) => {
                Command::Truncate { path: path(of), size: parse_size(size)? }
            }
            ("setfattr", [name, value, of]) => Command::SetXattr {
                name: (*name).to_owned(),
                value: value.as_bytes().into(),
                path: path(of),
            },
            ("encrypt", [dir]) => Command::Encrypt { path: path(dir) },
            ("verity", [file]) => Command::Verity { path: path(file) },
            (
                "put" | "get" | "write" | "append" | "mkdir" | "rm" | "mv" | "ln" | "chmod"
                | "chown" | "truncate" | "setfattr" | "encrypt" | "verity",
                _,
            ) => return Err(format!("{name}: wrong number of words (see --help)")),
            _ => return Err(format!("unknown command '{name}'")),
        })
    }
}

fn parse_owner(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let bad = || format!("'{text}' is not UID:GID in numbers");
    let id = |text: &str| match text {
        "" => Ok(None),
        text => parse_id(text).map(Some).ok_or_else(bad),
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    Ok((id(uid)?, id(gid)?))
}

/// Splits a line into words. Double quotes keep spaces. A backslash keeps the next character,
/// except that \n is a newline and \t a tab.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => {
                let next = letters.next().ok_or("a backslash at the end")?;
                word.get_or_insert_default().push(match next {
                    'n' => '\n',
                    't' => '\t',
                    next => next,
                });
            }
            letter if letter.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    if is_quoted {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

fn put(
    fs: &FileSystem,
    host: &Path,
    path: &Path,
    outputs: &[(PathBuf, OutputFile)],
) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error| Error::Host(host.display().to_string(), error);
    // An earlier line may have written this file.
    let output = outputs.iter().rev().find_map(|(_, output)| output.data_of(host));
    let mut from = std::fs::File::open(output.unwrap_or(host)).map_err(failed)?;
    let metadata = from.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    let options = FileOptions::new().write().create().truncate().permissions(mode as u16);
    let to = fs.open_file_with(path, &options)?;
    let mut buffer = buffer_for(metadata.len());
    let mut at = 0;
    loop {
        let len = from.read(&mut buffer).map_err(failed)?;
        let piece = buffer.get(..len).unwrap_or_default();
        if piece.is_empty() {
            return Ok(());
        }
        to.write_all_at(piece, at)?;
        at += len as u64;
    }
}

fn get(fs: &FileSystem, path: &Path, host: &Path) -> Result<OutputFile, Error> {
    let failed = |error| Error::Host(host.display().to_string(), error);
    let from = fs.open_file(path)?;
    let mut to = OutputFile::create(host).map_err(failed)?;
    let mut buffer = buffer_for(from.metadata().len());
    let mut at = 0;
    loop {
        let len = from.read_at(&mut buffer, at)?;
        let piece = buffer.get(..len).unwrap_or_default();
        if piece.is_empty() {
            return Ok(to);
        }
        to.file.write_all(piece).map_err(failed)?;
        at += len as u64;
    }
}

/// Returns a buffer for a file of `size` bytes, or for a part of the file. A small file gets a
/// small buffer, because clearing a buffer of the greatest length would take longer than the rest
/// of the copy. If a file grows while it is read, or is a pipe, it is read in parts.
fn buffer_for(size: u64) -> Vec<u8> {
    vec![0; usize::try_from(size).unwrap_or(MOST_BUFFERED).clamp(LEAST_BUFFERED, MOST_BUFFERED)]
}

fn append(fs: &FileSystem, path: &Path, text: &[u8]) -> Result<(), Error> {
    let file = fs.open_file_with(path, &FileOptions::new().append().create())?;
    let end = file.metadata().len();
    Ok(file.write_all_at(text, end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_words_or_json() {
        let words = split(r#"write "/a b" one\ntwo "" x"y z""#).unwrap();
        assert_eq!(words, ["write", "/a b", "one\ntwo", "", "xy z"]);
        assert!(split(r#"write "/a"#).is_err());
        let line = Line::parse(r#"["mkdir", "-p", "/a/b"]"#).unwrap();
        assert_eq!(line, Line::parse("mkdir -p /a/b").unwrap());
        assert_eq!(Line::parse("  # nothing"), Ok(None));
        for wrong in ["mkdir", "rm /a /b", "chmod 999 /a", "fly /a", "[1]", "chown a:b /x"] {
            assert!(Line::parse(wrong).is_err(), "{wrong}");
        }
    }
}
