//! The names of network block devices.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of seconds in which a server must answer, unless the name says otherwise.
const LIMIT: u32 = 30;
/// The port that IANA assigned.
const PORT: &str = "10809";
/// What is said of another name.
pub(crate) const FORM: &str = "names of network block devices are nbd://HOST[:PORT]/EXPORT and \
    nbd+unix:///EXPORT?socket=PATH, both with x-timeout=SECONDS and then @PARTITION if wanted; an @ \
    of the export is written %40; TLS needs a tunnel";

/// Returns whether `name` is the URI of a network block device rather than a path: `nbd://…` or
/// `nbd+unix://…`. With `nbds`, it is one that Lanefs cannot open.
pub fn is_uri(name: &Path) -> bool {
    let schemes = ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];
    schemes.iter().any(|scheme| name.as_os_str().as_bytes().starts_with(scheme.as_bytes()))
}

/// Where a server listens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// A network block device: a server, and the name of one of its exports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) listener: Listener,
    pub(super) export: String,
    pub(super) limit: Duration,
}

impl Address {
    /// Parses a URI as doc/uri.md of NetworkBlockDevice/nbd defines it. The parameter `x-timeout`
    /// is ours: the number of seconds in which the server must answer.
    pub(crate) fn parse(name: &Path) -> Option<Address> {
        // An `@` that names no partition must not become a part of the export's name: a server that
        // ignores names would serve the whole disk.
        let (scheme, rest) =
            name.to_str()?.split_once("://").filter(|(_, at)| !at.contains('@'))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        // The protocol limits all strings.
        let export = String::from_utf8(decode(export)?).ok().filter(|name| name.len() <= 4096)?;
        let (mut socket, mut limit) = (None, LIMIT);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=')? {
                ("socket", path) => socket = Some(decode(path)?),
                ("x-timeout", seconds) => {
                    limit = seconds.parse().ok().filter(|seconds| *seconds > 0)?;
                }
                _ => return None,
            }
        }
        let listener = match (scheme, socket) {
            ("nbd+unix", Some(path)) if authority.is_empty() => {
                Listener::Unix(OsString::from_vec(path).into())
            }
            ("nbd", None) => {
                let split = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
                let (host, port) = split.unwrap_or((authority, PORT));
                let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                Listener::Tcp(inner.unwrap_or(host).into(), port.parse().ok()?)
            }
            _ => return None,
        };
        Some(Address { listener, export, limit: Duration::from_secs(limit.into()) })
    }
}

/// Decodes `%XX`.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).filter(|(two, _)| !two.contains('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.bytes());
    }
    Some(bytes)
}
