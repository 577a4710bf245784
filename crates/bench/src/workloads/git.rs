//! Runs the program `git status` on a real source tree.

use super::untar::make_tree;
use crate::error::{Error, Result};
use crate::worker::{Assignment, Operation, Worker};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `git status` on a tree without changes.
pub(crate) struct Status {
    repository: PathBuf,
}

impl Status {
    pub fn new(given: Assignment<'_>) -> Result<Status> {
        let host = given.place.host_path().unwrap_or(Path::new("."));
        let repository = host.join(&given.own);
        make_tree(&given)?;
        let status = Status { repository };
        let who = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"];
        status.git(&["init", "-q"])?;
        // With -f, `git add` also adds files that a .gitignore of the tree excludes. Otherwise each
        // `git status` would match these untracked files against the patterns again.
        status.git(&["add", "-A", "-f"])?;
        status.git(&[&who[..], &["commit", "-q", "-m", "all of it"]].concat())?;
        status.git(&["status", "--porcelain"])?;
        Ok(status)
    }

    fn git(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let failed = |said: String| Error::Program { program: "git".into(), said };
        let output = Command::new("git")
            .arg("-C")
            .arg(&self.repository)
            .args(["-c", "gc.auto=0"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(output.stdout)
    }
}

impl Worker for Status {
    fn operation(&mut self) -> Result<Operation> {
        let changed = self.git(&["status", "--porcelain"])?;
        if !changed.is_empty() {
            let said = format!("says of an unchanged tree: {}", String::from_utf8_lossy(&changed));
            return Err(Error::Program { program: "git status".into(), said });
        }
        Ok(Operation::Done)
    }
}
