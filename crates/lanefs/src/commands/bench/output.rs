//! The files that figures are written to.

use super::Arguments;
use crate::cli::Failure;
use lanefs_bench::Record;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// Files that were asked for, opened before anything is measured: hours later is no time to hear that
/// there is no such directory. What is in them stays until there is something to write.
pub struct Output {
    json: Option<Place>,
    report: Option<Place>,
}

struct Place {
    path: PathBuf,
    file: File,
    /// It was made for this, and nothing is in it.
    is_empty: bool,
}

impl Output {
    /// Opens them.
    ///
    /// # Errors
    /// One cannot be written to.
    pub fn open(arguments: &Arguments) -> Result<Output, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Place::open).transpose();
        Ok(Output { json: open(&arguments.json)?, report: open(&arguments.report)? })
    }

    /// Writes all of a run.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(self, record: &Record) -> Result<(), Failure> {
        if let Some(place) = self.json {
            place.write(&format!("{:#}\n", lanefs_bench::json(record)))?;
        }
        if let Some(place) = self.report {
            place.write(&lanefs_bench::html(record))?;
        }
        Ok(())
    }
}

impl Place {
    fn open(path: &Path) -> Result<Place, Failure> {
        let failed = |error| Failure::host(path.display(), &error);
        let mut options = File::options();
        options.write(true);
        let (file, is_empty) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                (options.open(path).map_err(failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Place { path: path.into(), file, is_empty })
    }

    fn write(mut self, text: &str) -> Result<(), Failure> {
        self.is_empty = false;
        let file = &mut self.file;
        let written = file.metadata().and_then(|metadata| {
            // A pipe or a terminal has no length.
            if metadata.is_file() {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(text.as_bytes())
        });
        written.map_err(|error| Failure::host(self.path.display(), &error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_empty {
            // An empty file is no result; that it cannot be removed is no error of the run.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_once_something_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        let before = "what was there before, and longer";
        std::fs::write(&old, before).unwrap();
        let places = [&new, &old].map(|path| Place::open(path).unwrap());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
        drop(places);
        assert!(!new.exists() && old.exists());
        for path in [&new, &old] {
            Place::open(path).unwrap().write("figures").unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), "figures");
        }
        Place::open(Path::new("/dev/null")).unwrap().write("figures").unwrap();
        assert!(Place::open(&dir.path().join("no/such")).is_err());
        assert!(Place::open(dir.path()).is_err());
    }
}
