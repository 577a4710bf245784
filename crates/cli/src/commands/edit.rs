//! `lanefs edit`

use crate::cli::{
    Failure, FileArguments, OutputArguments, OutputFile, Report, WholeImage, parse_id, parse_size,
    read_keys, refuse_image,
};
use crate::copy::pump;
use lanefs::device::{Access, Device};
use lanefs::{FileOptions, FileSystem, MasterKey, NewVerity};
use lanefs_offline::{Draft, Published};
use serde_json::json;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The size of the caches in bytes. It is small, because all blocks that a script changes are in
/// memory anyway, and because allocating larger caches would take longer than running a short
/// script.
const CACHE_BYTES: u64 = 16 << 20;

/// The number of cached names. It is small for the same reason as `CACHE_BYTES`.
const NAMES: usize = 4096;

/// Makes many changes in an image, which become durable together: all or none
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A script has a command on each line: words, in double quotes where they contain spaces, or a JSON
list of words. Lines that begin with # are comments.

  put FILE PATH            copies a file of the host (- does not mean standard input)
  get PATH FILE            copies a file to the host, with the changes of earlier lines
  write PATH TEXT          replaces a file by text; append PATH TEXT adds to it
  mkdir [-p] PATH          makes a directory
  rm [-r] [-f] PATH        removes a file or tree
  mv FROM TO               renames
  ln [-s] TARGET PATH      links
  chmod MODE PATH          octal
  chown UID:GID PATH       numbers
  truncate PATH SIZE       changes a size
  setfattr NAME VALUE PATH sets an extended attribute
  encrypt PATH             encrypts an empty directory by the first --key
  verity PATH              makes a verity file: read-only, its data verified by a hash tree

If a command fails, nothing is changed in the image, and no file of the host is replaced, except one
with several names. The changes are kept in memory until the end (at most 4 GiB). Then new data is
written to free blocks, and all other changes go through the journal as one transaction. If they do
not fit into the journal, nothing is changed either.

Exit codes: 0 all is changed, 1 failure, 2 wrong usage.

Examples:
  lanefs edit disk.img script
  printf 'put motd /etc/motd\\nchmod 600 /etc/shadow\\n' | lanefs edit disk.img
  lanefs edit disk.img -c 'mkdir -p /srv' -c 'put app /srv/app'")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// The script; standard input if it is `-` or missing
    script: Option<PathBuf>,
    /// A command of the script, in place of a file
    #[arg(short, long, value_name = "COMMAND", conflicts_with = "script")]
    command: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: FileArguments,
}

/// Runs `lanefs edit`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("edit", |_| {
        let (lines, published) = edit(arguments)?;
        let facts = json!({
            "commands": lines,
            "new_blocks": published.new_blocks,
            "logged_blocks": published.logged_blocks,
        });
        let output = OutputArguments { json: arguments.json, quiet: true };
        Ok(output.print(&facts, [])?)
    })
}

/// Reads a script: the commands, or the file. A file that is `-` or missing is standard input.
pub fn read_script(script: Option<&Path>, commands: &[String]) -> Result<Vec<Line>, Failure> {
    let script = script.filter(|path| *path != Path::new("-"));
    let texts: Vec<String> = match (script, commands.is_empty()) {
        (_, false) => commands.to_vec(),
        (Some(path), true) => {
            let text = std::fs::read_to_string(path).map_err(Failure::on_host(path))?;
            text.lines().map(str::to_owned).collect()
        }
        (None, true) => std::io::stdin()
            .lock()
            .lines()
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::host("standard input", &error))?,
    };
    let mut lines = Vec::new();
    for (number, text) in (1..).zip(&texts) {
        let line = Line::parse(text);
        let line = line.map_err(|why| Failure::new(format_args!("line {number}"), why))?;
        lines.extend(line.map(|line| line.numbered(number)));
    }
    Ok(lines)
}

fn edit(arguments: &Arguments) -> Result<(usize, Published), Failure> {
    // The script is read before the image is locked, since the script may come from a slow pipe.
    let lines = read_script(arguments.script.as_deref(), &arguments.command)?;
    if arguments.options.journal.is_given() {
        return Err(Failure::new("--journal", "lanefs edit needs a journal in the image"));
    }
    let keys = read_keys(&arguments.options.keys)?;
    let whole = WholeImage::open(&arguments.image, arguments.options.image, Access::ReadWrite)?;
    refuse_outputs(&lines, &whole.files())?;
    let draft = Draft::open(whole.device()).map_err(|error| whole.failure(error))?;
    let outputs = run_lines(&lines, draft.device(), &keys, &arguments.image)?;
    let published = draft.publish().map_err(|error| whole.failure(error))?;
    // The image may no longer have what was copied out: each file is kept, whatever else fails.
    let closed = whole.close();
    let finished = finish_outputs(outputs);
    closed?;
    finished?;
    Ok((lines.len(), published))
}

/// The files of the host that replace earlier ones if the whole script succeeds.
pub type Outputs = Vec<(PathBuf, OutputFile)>;

/// Fails if a script writes one of `images`, the files that hold open images.
pub fn refuse_outputs(lines: &[Line], images: &[PathBuf]) -> Result<(), Failure> {
    lines.iter().filter_map(Line::writes_to).try_for_each(|path| refuse_image(path, images))
}

/// Runs a script on the file system on `device`; `image` is its name for messages.
pub fn run_lines(
    lines: &[Line],
    device: Arc<dyn Device>,
    keys: &[MasterKey],
    image: &Path,
) -> Result<Outputs, Failure> {
    let within = |error: lanefs::Error| Failure::within(image.display(), &error);
    let options =
        lanefs::OpenOptions::new().keys(keys).cache_bytes(CACHE_BYTES).cached_names(NAMES);
    let fs = FileSystem::open_device(device, &options).map_err(within)?;
    let mut job = Job { fs: &fs, keys, outputs: Vec::new() };
    for line in lines {
        line.run(&mut job).map_err(|error| match error {
            Error::Image(error) => line.failure(within(error)),
            Error::Host(path, error) => line.failure(Failure::host(path, &error)),
        })?;
    }
    let outputs = job.outputs;
    fs.close().map_err(within)?;
    Ok(outputs)
}

/// Gives the files that a script has written their names: each that can get it.
pub fn finish_outputs(outputs: Outputs) -> Result<(), Failure> {
    let finish =
        |(path, output): (PathBuf, OutputFile)| output.finish().map_err(Failure::on_host(&path));
    let finished: Vec<_> = outputs.into_iter().map(finish).collect();
    finished.into_iter().collect()
}

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

/// What the commands of a script work on.
pub struct Job<'a> {
    pub fs: &'a FileSystem,
    /// The master keys of the file system.
    pub keys: &'a [MasterKey],
    pub outputs: Outputs,
}

/// The words of a command, which [`command`] understands, with their line number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    number: usize,
    words: Vec<String>,
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
        drop(command(&words)?);
        Ok(Some(Line { number: 0, words }))
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
        match self.words.as_slice() {
            [name, _, host] if name == "get" => Some(Path::new(host)),
            _ => None,
        }
    }

    /// Runs the command.
    pub fn run(&self, job: &mut Job<'_>) -> Result<(), Error> {
        let wrong = |why| Error::Host("command".into(), std::io::Error::other(why));
        command(&self.words).map_err(wrong)?(job)
    }
}

type Command<'w> = Box<dyn Fn(&mut Job<'_>) -> Result<(), Error> + 'w>;

/// Parses the words of a command.
fn command(words: &[String]) -> Result<Command<'_>, String> {
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
    Ok(match (name.as_str(), operands.as_slice()) {
        ("put", &[host, path]) => Box::new(move |job| put(job, host.as_ref(), path)),
        ("get", &[path, host]) => Box::new(move |job| get(job, path, host.as_ref())),
        ("write", &[path, text]) => Box::new(move |job| Ok(job.fs.write(path, text)?)),
        ("append", &[path, text]) => Box::new(move |job| append(job.fs, path, text.as_bytes())),
        ("mkdir", &[path]) if has("-p") => Box::new(move |job| Ok(job.fs.create_dir_all(path)?)),
        ("mkdir", &[path]) => Box::new(move |job| Ok(job.fs.create_dir(path)?)),
        ("rm", &[path]) => {
            let (tree, force) = (has("-r") || has("-rf"), has("-f") || has("-rf"));
            Box::new(move |job| {
                match if tree { job.fs.remove_dir_all(path) } else { job.fs.remove_file(path) } {
                    Err(error) if force && error.is_not_found() => Ok(()),
                    removed => Ok(removed?),
                }
            })
        }
        ("mv", &[from, to]) => Box::new(move |job| Ok(job.fs.rename(from, to)?)),
        ("ln", &[target, path]) if has("-s") => {
            Box::new(move |job| Ok(job.fs.symlink(target, path)?))
        }
        ("ln", &[target, path]) => Box::new(move |job| Ok(job.fs.hard_link(target, path)?)),
        ("chmod", &[mode, path]) => {
            let mode_bits = u16::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
            let permissions = mode_bits.ok_or_else(|| format!("'{mode}' is no octal mode"))?;
            Box::new(move |job| Ok(job.fs.set_permissions(path, permissions)?))
        }
        ("chown", &[owner, path]) => {
            let (uid, gid) = parse_owner(owner)?;
            Box::new(move |job| Ok(job.fs.set_owner(path, uid, gid)?))
        }
        ("truncate", &[path, size]) => {
            let size = parse_size(size)?;
            Box::new(move |job| {
                let options = FileOptions::new().write(true).create(true);
                Ok(job.fs.open_file_with(path, &options)?.set_len(size)?)
            })
        }
        ("setfattr", &[name, value, path]) => {
            Box::new(move |job| Ok(job.fs.set_xattr(path, name, value)?))
        }
        ("encrypt", &[path]) => Box::new(move |job| {
            let no_key = || std::io::Error::other("give the key by --key");
            let key = job.keys.first().ok_or_else(no_key);
            let key = key.map_err(|error| Error::Host("encrypt".into(), error))?;
            Ok(job.fs.encrypt_dir(path, key)?)
        }),
        ("verity", &[path]) => Box::new(move |job| {
            job.fs.enable_verity(path, &NewVerity::default())?;
            Ok(())
        }),
        (
            "put" | "get" | "write" | "append" | "mkdir" | "rm" | "mv" | "ln" | "chmod" | "chown"
            | "truncate" | "setfattr" | "encrypt" | "verity",
            _,
        ) => return Err(format!("{name}: wrong number of words (see --help)")),
        _ => return Err(format!("unknown command '{name}'")),
    })
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

fn put(job: &Job<'_>, host: &Path, path: &str) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error| Error::Host(host.display().to_string(), error);
    // An earlier line may have written this file.
    let output = job.outputs.iter().rev().find_map(|(_, output)| output.data_of(host));
    let mut from = std::fs::File::open(output.unwrap_or(host)).map_err(failed)?;
    let metadata = from.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    let options =
        FileOptions::new().write(true).create(true).truncate(true).permissions(mode as u16);
    let to = job.fs.open_file_with(path, &options)?;
    let read = |_, buffer: &mut [u8]| from.read(buffer).map_err(failed);
    pump(buffer_for(metadata.len()), read, |at, piece| Ok(to.write_all_at(piece, at)?))
}

fn get(job: &mut Job<'_>, path: &str, host: &Path) -> Result<(), Error> {
    let failed = |error| Error::Host(host.display().to_string(), error);
    let from = job.fs.open_file(path)?;
    let mut to = OutputFile::create(host).map_err(failed)?;
    let read = |at, buffer: &mut [u8]| Ok(from.read_at(buffer, at)?);
    let write = |_, piece: &[u8]| to.file.write_all(piece).map_err(failed);
    pump(buffer_for(from.metadata().len()), read, write)?;
    job.outputs.push((host.into(), to));
    Ok(())
}

/// Returns a buffer for a file of `size` bytes, or for a part of the file. A small file gets a
/// small buffer, because clearing a buffer of the greatest length would take longer than the rest
/// of the copy. If a file grows while it is read, or is a pipe, it is read in parts.
fn buffer_for(size: u64) -> Vec<u8> {
    vec![0; usize::try_from(size).unwrap_or(MOST_BUFFERED).clamp(LEAST_BUFFERED, MOST_BUFFERED)]
}

fn append(fs: &FileSystem, path: &str, text: &[u8]) -> Result<(), Error> {
    let file = fs.open_file_with(path, &FileOptions::new().append(true).create(true))?;
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
