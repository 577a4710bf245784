//! Messages and exit codes.

use lanefs_device::{OpenError, stdout_was_closed};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A failure: the object that it concerns, and the cause.
#[derive(Debug)]
pub struct Failure {
    place: String,
    cause: String,
}

impl Failure {
    /// Creates a failure that concerns `place` and was caused by `cause`.
    pub fn new(place: impl Display, cause: impl Display) -> Failure {
        Failure { place: place.to_string(), cause: cause.to_string() }
    }

    /// Returns the failure with the object `to` in place of `from`, if it concerns `from`.
    pub fn renamed(self, from: &str, to: impl Display) -> Failure {
        match self.place.strip_prefix(from) {
            Some(rest) => Failure::new(format_args!("{to}{rest}"), self.cause),
            None => self,
        }
    }

    /// Parses a failure that another process sent as text, `PLACE: CAUSE`.
    pub fn parse(text: &str) -> Failure {
        match text.split_once(": ") {
            Some((place, cause)) => Failure::new(place, cause),
            None => Failure::new("array", text),
        }
    }

    /// Converts an error that the library returned for a path in `image`.
    pub fn within(image: impl Display, error: &lanefs::Error) -> Failure {
        match error.path() {
            Some(path) => Failure::new(format_args!("{image}:{}", path.display()), error.cause()),
            None => Failure::new(image, error.cause()),
        }
    }

    /// Converts an error from opening `name`, which is an image or an array.
    pub fn opening_source(name: &Path, error: &lanefs::Error) -> Failure {
        match error.cause() {
            lanefs::Cause::Open(error) => Failure::opening(error),
            cause => Failure::new(name.display(), cause),
        }
    }

    /// Converts an error from opening an image. The failure names the image as it was opened.
    fn opening(error: &OpenError) -> Failure {
        Failure::parse(&plain(&error.to_string()))
    }

    /// Converts an error that the host returned for one of its paths.
    pub fn host(path: impl Display, error: &io::Error) -> Failure {
        Failure::new(path, host_cause(error))
    }

    /// Returns a function that converts an error of the host about `path`.
    pub fn on_host<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Failure {
        move |error| Failure::host(path.display(), &error.into())
    }

    /// Returns a function that converts an error about `place`, such as an image.
    pub fn about<E: Display>(place: &Path) -> impl Fn(E) -> Failure {
        move |error| Failure::new(place.display(), error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::opening(&error)
    }
}

/// Why a command that prints something ends early.
pub enum Stop {
    Failure(Failure),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

/// Formats the host's error in the style of Lanefs: lower case, without the number.
pub fn host_cause(error: &io::Error) -> String {
    lowered(&plain(&error.to_string()))
}

/// Returns a text that starts in lower case.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_lowercase).into_iter().flatten();
    first.chain(letters).collect()
}

/// Formats a message that ends with an error of the host: the error starts in lower case, and its
/// number is removed.
pub fn plain(text: &str) -> String {
    let Some((text, _)) = text.split_once(" (os error") else { return text.into() };
    match text.rsplit_once(": ") {
        Some((place, cause)) => format!("{place}: {}", lowered(cause)),
        None => text.into(),
    }
}

/// Replaces control characters, which names in an image may contain, by question marks.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What a command or an option does about something that the library says, which knows neither:
/// words of the message, and what is added at its end.
const ADVICE: [(&str, &str); 12] = [
    (": write-protected", " (blockdev --setrw)"),
    ("e2fsck was started on", ": if it was interrupted, run lanefs repair --take-over"),
    (": it is not given", ": give its path (--journal PATH, mount -o journal_path=PATH)"),
    ("the journal's inode has", ": lanefs repair mends it"),
    ("it has to be checked first", ": run lanefs repair or e2fsck -f"),
    ("the resize inode is damaged", ": check it with lanefs repair or e2fsck -f"),
    ("without a journal,", ": add one first (lanefs tune -j)"),
    ("blocks of the journal, and the journal has", ": make it longer (lanefs tune -J size=...)"),
    ("accept the loss", ": lanefs raid recover --force"),
    ("has no slot", ": lanefs raid add gives it one"),
    ("the files do not fit into", "; give a larger --size, or --size auto"),
    ("files need more inodes than", "; give more with --inodes, or --size auto"),
];

/// Returns a message of the library with what the user can do about it.
pub fn advised(message: &str) -> String {
    let advice = ADVICE.iter().find(|(words, _)| message.contains(words));
    format!("{message}{}", advice.map_or("", |(_, advice)| advice))
}

/// Prints one line on standard error. A closed standard error is ignored, because the exit code
/// also reports the failure.
pub fn complain(line: impl Display) {
    // The line is written by one call, so that lines of several threads are not mixed.
    let line = format!("{}\n", printable(&advised(&line.to_string())));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// If standard output is closed, makes it a pipe that nobody reads, so that a command that prints
/// something fails. Rust has made it `/dev/null`.
pub fn fail_on_closed_stdout() {
    if stdout_was_closed()
        && let Ok((_, pipe)) = rustix::pipe::pipe()
    {
        let _ = rustix::stdio::dup2_stdout(pipe);
    }
}

/// The failures of a command, and its exit code.
pub struct Report {
    command: &'static str,
    failed: AtomicBool,
}

impl Report {
    /// Creates an empty report of the subcommand `command`.
    pub fn new(command: &'static str) -> Report {
        Report { command, failed: AtomicBool::new(false) }
    }

    /// Runs the subcommand `command`, which ends at the first error that `act` returns, and returns
    /// the exit code. The output is standard output.
    pub fn run(command: &'static str, act: impl FnOnce(&Report) -> Result<(), Stop>) -> ExitCode {
        let report = Report::new(command);
        match act(&report) {
            Ok(()) => {}
            Err(Stop::Failure(failure)) => report.fail(failure),
            Err(Stop::Output(error)) => report.printed(Err(error)),
        }
        report.exit()
    }

    /// Prints a failure. The command continues, and exits with 1 at the end.
    pub fn fail(&self, failure: impl Display) {
        self.failed.store(true, Ordering::Relaxed);
        complain(format_args!("lanefs {}: {failure}", self.command));
    }

    /// Calls [`Report::fail`] if `result` is an error.
    pub fn check<E: Display>(&self, result: Result<(), E>) {
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Returns the value of `result`; if `result` is an error, calls [`Report::fail`] and returns
    /// `None`.
    pub fn given<T, E: Display>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// Checks the result of writing to standard output. If standard output is a pipe that nobody
    /// reads any more, prints no message, but the command exits with 1 because its output is
    /// incomplete.
    pub fn printed(&self, result: io::Result<()>) {
        match result {
            Ok(()) => {}
            Err(_) if stdout_was_closed() => self.fail("standard output: closed"),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.failed.store(true, Ordering::Relaxed);
            }
            Err(error) => self.fail(Failure::host("standard output", &error)),
        }
    }

    /// Returns whether something failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the exit code: 0, or 1 if something failed.
    pub fn exit(&self) -> ExitCode {
        if self.has_failed() { ExitCode::from(1) } else { ExitCode::SUCCESS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_host_read_as_our_own() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(host_cause(&error), "no such file or directory");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a?[2Jb?");
    }
}
