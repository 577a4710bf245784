//! External programs, such as mke2fs.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Creates an ext4 image of `bytes` at `path` with the options that all measured images have. These
/// are 4 KiB blocks, one inode for each 8 KiB, and no initialisation that would run in the
/// background during a measurement.
pub(crate) fn make_image(path: &Path, bytes: u64) -> Result<()> {
    make_image_with(path, bytes, &[])
}

/// Does the same as [`make_image`], with further arguments for mke2fs.
pub(crate) fn make_image_with(path: &Path, bytes: u64, more: &[&str]) -> Result<()> {
    let size = format!("{}k", bytes / 1024);
    let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let words = ["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "8192", "-E", lazy];
    call(Command::new(find("mke2fs")?).args(words).args(more).arg(path).arg(size))
}

/// Returns the path of the program `name`. Searches the directories in `PATH`, then `/sbin` and
/// `/usr/sbin`.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/sbin".into(), "/usr/sbin".into()]);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Does the same as [`program`], but returns an error if the program is not installed.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    program(name)
        .ok_or_else(|| Error::Program { program: name.into(), said: "not installed".into() })
}

/// Runs `command` and waits until it exits.
pub(crate) fn call(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |said: String| Error::Program { program: name.clone(), said };
    let output = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = call(Command::new("sh").args(["-c", "echo because >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh: because");
    }
}
