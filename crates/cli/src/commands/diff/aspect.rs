//! The properties by which files are compared, and the differences.

/// A property by which files are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Aspect {
    Content,
    Mode,
    Owner,
    Xattrs,
    Links,
}

/// The chosen properties.
#[derive(Debug, Clone)]
pub struct Aspects {
    pub ignored: Vec<Aspect>,
    /// Whether the times of the last modification are compared.
    pub times: bool,
}

impl Aspects {
    /// Returns whether files are compared by `aspect`.
    pub fn contain(&self, aspect: Aspect) -> bool {
        !self.ignored.contains(&aspect)
    }
}

/// A difference: its name, its text for the user, and the values of both sides.
pub struct Change {
    pub what: &'static str,
    pub text: String,
    pub values: serde_json::Value,
}
