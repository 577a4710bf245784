//! Completion of the command line in a shell, also of paths inside images.
//!
//! The script of a shell (`lanefs completions SHELL`) runs `lanefs` with the variable
//! [`VARIABLE`] and the words typed so far, and gets the candidates on standard output.

use crate::cli::Operand;
use clap::{Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use lanefs::{FileSystem, FileType, OpenOptions};
use lanefs_device::{FileDevice, OpenOptions as DeviceOptions, PartitionTable};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The environment variable by which a shell's script asks for candidates.
const VARIABLE: &str = "LANEFS_COMPLETE";
/// The number of entries of a directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// A shell for which there is a script.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    /// Needs the package bash-completion
    Bash,
    Zsh,
    Fish,
}

/// Prints candidates and returns true if a shell's script asks for them.
pub fn answer(describe: fn() -> Command) -> bool {
    let asked = CompleteEnv::with_factory(move || with_paths(describe())).var(VARIABLE);
    // The shell shows nothing if there is an error, as for a word without candidates.
    asked.try_complete(std::env::args_os(), None).unwrap_or(std::env::var_os(VARIABLE).is_some())
}

/// Writes the script that registers the completion in `shell`.
pub fn write_script(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    match shell {
        // clap's scripts for bash and zsh do not complete words with a colon, and that for fish no
        // words with a blank.
        Shell::Bash => out.write_all(include_bytes!("completion/lanefs.bash")),
        Shell::Zsh => out.write_all(include_bytes!("completion/lanefs.zsh")),
        Shell::Fish => out.write_all(include_bytes!("completion/lanefs.fish")),
    }
}

/// Adds the completion of paths to all operands that have no fixed set of values.
fn with_paths(command: Command) -> Command {
    command
        .mut_args(|argument| match argument.is_positional() {
            true if argument.get_possible_values().is_empty() => {
                argument.add(ArgValueCompleter::new(candidates))
            }
            _ => argument,
        })
        .mut_subcommands(with_paths)
}

/// Returns the paths that begin with `typed`: inside an image after `IMAGE:/`, else on the host.
fn candidates(typed: &OsStr) -> Vec<CompletionCandidate> {
    if let Operand::Image(place) = Operand::from(typed.to_owned())
        && let Some(found) = in_image(typed, &place.image)
    {
        return found;
    }
    let mut found = PathCompleter::any().complete(typed);
    found.extend(partitions(typed).unwrap_or_default());
    found
}

/// Returns the numbers of the partitions that complete `IMAGE@`.
fn partitions(typed: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let at = typed.as_bytes().iter().rposition(|&byte| byte == b'@')?;
    let image = OsStr::from_bytes(typed.as_bytes().get(..at)?);
    let disk = FileDevice::peek(image, DeviceOptions::default()).ok()?;
    let table = PartitionTable::of_sectors(&disk, disk.sector()).ok()??;
    let found = table.partitions.iter().filter(|found| !found.is_extended).map(|found| {
        let mut name = image.to_owned();
        name.push(format!("@{}", found.number));
        name
    });
    let found = found.filter(|name| name.as_bytes().starts_with(typed.as_bytes()));
    Some(found.map(CompletionCandidate::new).collect())
}

/// Returns the entries of an image that complete `typed`; `None` if the image cannot be read.
fn in_image(typed: &OsStr, image: &Path) -> Option<Vec<CompletionCandidate>> {
    let bytes = typed.as_bytes();
    let begin = bytes.iter().rposition(|&byte| byte == b'/')? + 1;
    let (before, prefix) = bytes.split_at_checked(begin)?;
    let dir = before.get(image.as_os_str().len() + 1..)?;
    let fs = FileSystem::open_with(image, &OpenOptions::new().read_only()).ok()?;
    let mut found = Vec::new();
    for entry in fs.read_dir(OsStr::from_bytes(dir)).ok()?.flatten().take(MAX_ENTRIES) {
        let name = entry.file_name().as_bytes();
        if name.starts_with(prefix) && name != b"." && name != b".." {
            let is_dir = entry.file_type().is_ok_and(FileType::is_dir);
            let end: &[u8] = if is_dir { b"/" } else { b"" };
            found.push([before, name, end].concat());
        }
    }
    found.sort();
    Some(found.iter().map(|path| CompletionCandidate::new(OsStr::from_bytes(path))).collect())
}
