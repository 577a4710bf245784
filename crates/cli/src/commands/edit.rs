//! `lanefs edit`

mod script;

use crate::cli::{
    Failure, FileArguments, OutputArguments, Report, WholeImage, read_keys, refuse_image,
};
use lanefs::FileSystem;
use lanefs::device::Access;
use lanefs_offline::{Draft, Published};
use script::{Job, Line};
use serde_json::json;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

fn read_script(arguments: &Arguments) -> Result<Vec<Line>, Failure> {
    let script = arguments.script.as_deref().filter(|path| *path != Path::new("-"));
    let texts: Vec<String> = match (script, arguments.command.is_empty()) {
        (_, false) => arguments.command.clone(),
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
    let lines = read_script(arguments)?;
    if arguments.options.journal.is_given() {
        return Err(Failure::new("--journal", "lanefs edit needs a journal in the image"));
    }
    let keys = read_keys(&arguments.options.keys)?;
    let whole = WholeImage::open(&arguments.image, arguments.options.image, Access::ReadWrite)?;
    for path in lines.iter().filter_map(Line::writes_to) {
        refuse_image(path, &whole.files())?;
    }
    let draft = Draft::open(whole.device()).map_err(|error| whole.failure(error))?;
    let within = |error: lanefs::Error| Failure::within(arguments.image.display(), &error);
    let options =
        lanefs::OpenOptions::new().keys(&keys).cache_bytes(CACHE_BYTES).cached_names(NAMES);
    let fs = FileSystem::open_device(draft.device(), &options).map_err(within)?;
    let mut job = Job { fs: &fs, keys: &keys, outputs: Vec::new() };
    for line in &lines {
        line.run(&mut job).map_err(|error| match error {
            script::Error::Image(error) => line.failure(within(error)),
            script::Error::Host(path, error) => line.failure(Failure::host(path, &error)),
        })?;
    }
    let outputs = job.outputs;
    fs.close().map_err(within)?;
    let published = draft.publish().map_err(|error| whole.failure(error))?;
    whole.close()?;
    for (path, output) in outputs {
        output.finish().map_err(Failure::on_host(&path))?;
    }
    Ok((lines.len(), published))
}
