//! Messages of `lanefs mount`.

use crate::cli::{complain, plain};
use std::error::Error;
use std::ffi::OsStr;
use std::process::ExitCode;

/// Prints a warning, as mount(8) does when it mounts with options other than those that the user
/// gave.
pub(super) fn warn(source: &OsStr, what: &str) {
    complain(format_args!("lanefs mount: {}: WARNING: {what}", source.display()));
}

pub(super) fn failed(error: &dyn Error) -> ExitCode {
    complain(message(error));
    ExitCode::FAILURE
}

/// Formats the error and its sources, on one line.
pub(super) fn message(error: &dyn Error) -> String {
    let mut text = format!("lanefs mount: {}", plain(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = plain(&error.to_string());
        if !text.to_lowercase().contains(&more.to_lowercase()) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_device::OpenError;
    use std::io;

    #[test]
    fn a_message_names_each_cause_once() {
        let error = OpenError::Io {
            path: "/a".into(),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        assert_eq!(message(&error), "lanefs mount: /a: permission denied");
        let error = OpenError::Io { path: "/a".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(message(&error), "lanefs mount: /a: no such file or directory");
    }
}
