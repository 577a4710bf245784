//! The handshake: fixed newstyle, structured replies, NBD_OPT_GO.

use super::wire::Wire;
use std::io;
use std::time::Instant;

const REPLY_MAGIC: u64 = 0x3_e889_0455_65a9;
const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const INFO_EXPORT: [u8; 2] = [0, 0];
/// The most replies to one option, and the most bytes of one reply.
const MAX_REPLIES: usize = 64;
const MAX_REPLY: u32 = 64 << 10;
/// What the server says about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    flags: u16,
    pub(super) is_structured: bool,
}

/// A transmission flag.
#[derive(Debug, Clone, Copy)]
pub(super) enum Can {
    /// Refuses all writes.
    OnlyRead = 1 << 1,
    Flush = 1 << 2,
    WriteDurably = 1 << 3,
    Trim = 1 << 5,
    WriteZeros = 1 << 6,
    /// A flush on one connection reaches the writes on all.
    ShareFlushes = 1 << 8,
}

impl Export {
    pub(super) fn can(&self, what: Can) -> bool {
        self.flags & what as u16 != 0
    }

    /// Enters the transmission phase for the export `name`.
    pub(super) fn go(wire: &Wire, name: &str, deadline: Instant) -> io::Result<Export> {
        let mut greeting = [0; 18];
        wire.read(&mut greeting, deadline)?;
        let [magic @ .., high, low] = greeting;
        let flags = u16::from_be_bytes([high, low]);
        if magic != *b"NBDMAGICIHAVEOPT" || flags & 1 == 0 {
            return Err(io::Error::other("no NBD server of the fixed newstyle protocol"));
        }
        wire.write(&u32::from(flags & 0b11).to_be_bytes(), deadline)?;
        let is_structured = option(wire, (OPT_STRUCTURED_REPLY, &[]), deadline)?.is_ok();
        // No sizes of blocks are asked for, so the server takes requests of any alignment.
        let len = (name.len() as u32).to_be_bytes();
        let asked = [&len[..], name.as_bytes(), &[0, 0]].concat();
        let infos = option(wire, (OPT_GO, &asked), deadline)?.map_err(|(kind, text)| {
            let why = match kind & 0xffff {
                1 => "it is too old: it does not know NBD_OPT_GO",
                2 => "it does not permit that",
                5 => "it requires TLS: reach it through a tunnel",
                6 => "it has no export of this name",
                8 => "it only takes aligned requests",
                _ => "it refused",
            };
            let text = String::from_utf8_lossy(&text);
            io::Error::other(format!("{why} ({text:?})"))
        })?;
        let export = infos.iter().find_map(|info| match info.split_first_chunk()? {
            (&INFO_EXPORT, &[a, b, c, d, e, f, g, h, i, j]) => {
                let size = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                Some((size, u16::from_be_bytes([i, j])))
            }
            _ => None,
        });
        match export {
            Some((size, flags)) if i64::try_from(size).is_ok() => {
                Ok(Export { size, flags, is_structured })
            }
            _ => Err(io::Error::other(format!("it told no possible size: {export:?}"))),
        }
    }
}

/// What the server answered to an option: all that it told, or the error and its text.
type Answer = Result<Vec<Vec<u8>>, (u32, Vec<u8>)>;

fn option(wire: &Wire, (option, data): (u32, &[u8]), deadline: Instant) -> io::Result<Answer> {
    let len = (data.len() as u32).to_be_bytes();
    wire.write(&[OPTION_MAGIC, &option.to_be_bytes(), &len, data].concat(), deadline)?;
    let mut infos = Vec::new();
    for _ in 0..MAX_REPLIES {
        let magic = u64::from_be_bytes(wire.array(deadline)?);
        let about = u32::from_be_bytes(wire.array(deadline)?);
        let kind = u32::from_be_bytes(wire.array(deadline)?);
        let len = u32::from_be_bytes(wire.array(deadline)?);
        if magic != REPLY_MAGIC || about != option || len > MAX_REPLY {
            return Err(io::Error::other("it broke the protocol of the handshake"));
        }
        let mut data = vec![0; len as usize];
        wire.read(&mut data, deadline)?;
        match kind {
            REP_ACK => return Ok(Ok(infos)),
            REP_INFO => infos.push(data),
            _ if kind >> 31 != 0 => return Ok(Err((kind, data))),
            _ => {}
        }
    }
    Err(io::Error::other("its answer to an option does not end"))
}
