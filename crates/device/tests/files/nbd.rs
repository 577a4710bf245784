//! Network block devices: a server in this process that stalls, breaks off and lies, and real ones.

use lanefs_device::{Access, Device, FileDevice, OpenError, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;
const FLUSH_AND_FUA: u16 = 0b1101;
const MULTI: u16 = 1 << 8;

/// What a server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    OldStyle,
    EndlessOption,
    LongOption,
    NoExport,
    HugeSize,
    StallInHandshake,
    StallInRequest,
    DripBytes,
    CloseInReply,
    WrongMagic,
    WrongCookie,
    AnswerTwice,
    DataBefore,
    DataBeyond,
    LongChunk,
    LeaveOut,
    Overlap,
    HoleBetween,
    EmptyChunk,
    LongError,
    Refuse,
    SimpleReply,
}

struct Server {
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts a server that keeps all bytes 7, and has `fault`.
    fn start(fault: Fault, flags: u16) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                std::thread::spawn(move || serve(client, fault, flags));
            }
        });
        Server { dir }
    }

    fn open(&self, access: Access) -> Result<FileDevice, OpenError> {
        let name = format!("nbd+unix:///e?socket={}/s&x-timeout=1", self.dir.path().display());
        FileDevice::open(name, access, OpenOptions::default())
    }
}

fn get<const N: usize>(client: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn option_reply(client: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let magic = 0x3e889045565a9u64.to_be_bytes();
    let len = (data.len() as u32).to_be_bytes();
    client.write_all(&[&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &len, data].concat())
}

fn serve(mut client: UnixStream, fault: Fault, flags: u16) -> io::Result<()> {
    let stall = || std::thread::sleep(Duration::from_secs(20));
    match fault {
        Fault::StallInHandshake => stall(),
        Fault::OldStyle => client.write_all(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0")?,
        _ => client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?,
    }
    get::<4>(&mut client)?;
    loop {
        let head: [u8; 16] = get(&mut client)?;
        let option = u32::from_be_bytes(head[8..12].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(head[12..].try_into().unwrap()) as usize];
        client.read_exact(&mut data)?;
        match fault {
            Fault::EndlessOption => loop {
                option_reply(&mut client, option, 3, &[0, 9])?;
            },
            Fault::LongOption => {
                let magic = 0x3e889045565a9u64.to_be_bytes();
                client.write_all(&[&magic[..], &option.to_be_bytes(), &[0, 0, 0, 3]].concat())?;
                client.write_all(&[0xff; 4096])?;
            }
            _ => {}
        }
        if option == 7 {
            if fault == Fault::NoExport {
                option_reply(&mut client, 7, (1 << 31) + 6, b"who is \x1b[31m e?")?;
                continue;
            }
            let size = if fault == Fault::HugeSize { u64::MAX } else { SIZE };
            let export = [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
            option_reply(&mut client, 7, 3, &export)?;
            option_reply(&mut client, 7, 1, &[])?;
            break;
        }
        option_reply(&mut client, option, 1, &[])?;
    }
    let mut held = Vec::new();
    loop {
        let head: [u8; 28] = get(&mut client)?;
        let command = u16::from_be_bytes([head[6], head[7]]);
        let cookie: [u8; 8] = head[8..16].try_into().unwrap();
        let offset = u64::from_be_bytes(head[16..24].try_into().unwrap());
        let len = u32::from_be_bytes(head[24..].try_into().unwrap());
        let chunk = |done: u16, kind: u16, cookie: [u8; 8], len: u32| {
            let magic = 0x668e33efu32.to_be_bytes();
            let (done, kind, len) = (done.to_be_bytes(), kind.to_be_bytes(), len.to_be_bytes());
            [&magic[..], &done, &kind, &cookie, &len].concat()
        };
        let simple = [&0x67446698u32.to_be_bytes()[..], &[0; 4], &cookie].concat();
        let data = |offset: u64, len: u32| {
            let head = chunk(0, 1, cookie, len + 8);
            [&head[..], &offset.to_be_bytes(), &vec![7; len as usize]].concat()
        };
        let end = chunk(1, 0, cookie, 0);
        match command {
            1 => {
                let mut bytes = vec![0; len as usize];
                client.read_exact(&mut bytes)?;
            }
            2 => return Ok(()),
            _ => {}
        }
        let good = match command {
            0 => [data(offset, len), end.clone()].concat(),
            _ => simple.clone(),
        };
        let reply = match fault {
            Fault::StallInRequest => {
                stall();
                Vec::new()
            }
            Fault::DripBytes => {
                for byte in &good {
                    client.write_all(&[*byte])?;
                    std::thread::sleep(Duration::from_millis(300));
                }
                Vec::new()
            }
            Fault::CloseInReply => {
                client.write_all(&good[..good.len() / 2])?;
                return Ok(());
            }
            Fault::WrongMagic => vec![0x41; 64],
            Fault::WrongCookie => [&chunk(1, 0, [9; 8], 0)[..], &good].concat(),
            Fault::AnswerTwice => [&end[..], &end, &good].concat(),
            Fault::DataBefore => data(offset.wrapping_sub(1), len),
            Fault::DataBeyond => data(offset + 1, len),
            Fault::LongChunk => {
                [&chunk(1, 1, cookie, u32::MAX)[..], &offset.to_be_bytes()].concat()
            }
            Fault::LeaveOut if len > 1 => [data(offset, len - 1), end].concat(),
            Fault::Overlap => [data(offset, len), data(offset, len), end].concat(),
            Fault::HoleBetween => {
                let half = data(offset, len / 2);
                [half.clone(), half, end].concat()
            }
            Fault::EmptyChunk => chunk(0, 0, cookie, 0).repeat(1 << 16),
            Fault::LongError => chunk(1, 0x8001, cookie, 1 << 30),
            Fault::Refuse => [&chunk(1, 0x8001, cookie, 6)[..], &[0, 0, 0, 28, 0, 0]].concat(),
            Fault::SimpleReply => [simple, vec![7; len as usize]].concat(),
            // Two replies are held back and then sent in the wrong order.
            Fault::None if command == 0 && held.is_empty() && len == 999 => {
                held = good;
                continue;
            }
            _ => [good, std::mem::take(&mut held)].concat(),
        };
        client.write_all(&reply)?;
    }
}

#[test]
fn a_sound_server_is_read_and_written_by_many_threads() {
    for flags in [FLUSH_AND_FUA, FLUSH_AND_FUA | MULTI] {
        let server = Server::start(Fault::None, flags);
        let device = server.open(Access::ReadWrite).unwrap();
        assert_eq!(device.len(), SIZE);
        std::thread::scope(|s| {
            for thread in 0..8 {
                let device = &device;
                s.spawn(move || {
                    for round in 0..200 {
                        let mut bytes = vec![0; 1 + thread * 100 + round];
                        device.read_at(round as u64, &mut bytes).unwrap();
                        assert!(bytes.iter().all(|byte| *byte == 7));
                        device.write_at(5, &bytes).unwrap();
                    }
                });
            }
        });
        device.write_durable_at(0, &[1; 100]).unwrap();
        device.flush().unwrap();
        assert!(device.read_at(SIZE - 1, &mut [0; 2]).is_err());
    }
    let read_only = Server::start(Fault::None, FLUSH_AND_FUA | 2);
    let refused = read_only.open(Access::ReadWrite).unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    read_only.open(Access::ReadOnly).unwrap();
    let no_flush = Server::start(Fault::None, 1).open(Access::ReadWrite).unwrap_err();
    assert!(no_flush.to_string().contains("no flush"), "{no_flush}");
}

#[test]
fn replies_that_come_in_another_order_reach_their_threads() {
    let server = Server::start(Fault::None, FLUSH_AND_FUA);
    let device = server.open(Access::ReadOnly).unwrap();
    std::thread::scope(|s| {
        let held = s.spawn(|| device.read_at(0, &mut [0; 999]));
        std::thread::sleep(Duration::from_millis(100));
        device.read_at(4096, &mut [0; 512]).unwrap();
        held.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_that_stalls_breaks_off_or_lies_is_an_error_within_the_limit() {
    use Fault::*;
    for (fault, said) in [
        (OldStyle, "fixed newstyle"),
        (EndlessOption, "does not end"),
        (LongOption, "broke the protocol"),
        (NoExport, "no export of this name (\"who is \\u{1b}[31m e?\")"),
        (HugeSize, "no possible size: Some((18446744073709551615"),
        (StallInHandshake, "time limit"),
    ] {
        let start = Instant::now();
        let error = Server::start(fault, FLUSH_AND_FUA).open(Access::ReadWrite).unwrap_err();
        assert!(error.to_string().contains(said), "{fault:?}: {error}");
        assert!(start.elapsed() < Duration::from_secs(5), "{fault:?}");
    }
    for (fault, said) in [
        (StallInRequest, "time limit"),
        (DripBytes, "time limit"),
        (CloseInReply, "closed it"),
        (WrongMagic, "0x41414141"),
        (WrongCookie, "not asked"),
        (AnswerTwice, "left out"),
        (DataBefore, "not asked for"),
        (DataBeyond, "not asked for"),
        (LongChunk, "not asked for"),
        (LeaveOut, "left out"),
        (Overlap, "not asked for"),
        (HoleBetween, "not asked for"),
        (EmptyChunk, "chunk of type 0"),
        (LongError, "chunk of type 32769"),
        (Refuse, "No space left"),
        (SimpleReply, "simple reply"),
    ] {
        let start = Instant::now();
        let server = Server::start(fault, FLUSH_AND_FUA | MULTI);
        let device = server.open(Access::ReadWrite).unwrap();
        let error = device.read_at(8, &mut [0; 4096]).unwrap_err();
        assert!(error.to_string().contains(said), "{fault:?}: {error}");
        assert!(start.elapsed() < Duration::from_secs(5), "{fault:?}");
        if fault == Refuse {
            continue;
        }
        // No thread uses another connection: the device stays failed.
        for thread in 0..6 {
            let failed = std::thread::scope(|s| s.spawn(|| device.flush()).join().unwrap());
            let failed = failed.unwrap_err().to_string();
            assert!(failed.contains("connection to the NBD server was lost"), "{thread}: {failed}");
            assert!(device.write_at(0, &[1]).is_err());
        }
    }
}

/// A server that is killed at the end of a test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts nbdkit with `words`. None if it is not installed.
fn nbdkit(socket: &Path, words: &[&str]) -> Option<Process> {
    let mut command = Command::new("nbdkit");
    command.args(["-f", "--exit-with-parent", "-U"]).arg(socket).args(words);
    let Ok(child) = command.stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: nbdkit is not installed");
        return None;
    };
    let server = Process(child);
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "nbdkit does not start: {words:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(server)
}

fn uri(socket: &Path) -> PathBuf {
    format!("nbd+unix:///?socket={}&x-timeout=5", socket.display()).into()
}

#[test]
fn nbdkit_keeps_what_is_written_with_every_kind_of_server() {
    let dir = tempfile::tempdir().unwrap();
    for (number, words) in [
        &["memory", "4M"][..],
        &["--no-sr", "memory", "4M"],
        &["--filter=cow", "memory", "4M"],
        &["--filter=delay", "memory", "4M", "delay-write=2ms"],
        &["--filter=nozero", "memory", "4M"],
        &["--filter=fua", "memory", "4M", "fuamode=discard"],
    ]
    .iter()
    .enumerate()
    {
        let socket = dir.path().join(number.to_string());
        let Some(_server) = nbdkit(&socket, words) else { return };
        let options = OpenOptions::default();
        let device = FileDevice::open(uri(&socket), Access::ReadWrite, options).unwrap();
        let mut want = vec![0; 4 << 20];
        assert_eq!(device.len(), want.len() as u64);
        let mut random = fastrand::Rng::with_seed(number as u64);
        for _ in 0..60 {
            let at = random.usize(..want.len() - 1);
            let len = random.usize(1..(want.len() - at).min(300_000));
            let kind = random.u8(..5);
            let fill = |_| if kind == 0 { 0 } else { random.u8(..) };
            let bytes: Vec<u8> = (0..len).map(fill).collect();
            match kind {
                0 => device.write_zeros(at as u64, len as u64).unwrap(),
                1 => device.write_durable_at(at as u64, &bytes).unwrap(),
                _ => device.write_vectored_at(at as u64, &[&bytes[..1], &bytes[1..]]).unwrap(),
            }
            want[at..at + len].copy_from_slice(&bytes);
        }
        device.flush().unwrap();
        drop(device);
        let device = FileDevice::open(uri(&socket), Access::ReadOnly, options).unwrap();
        let mut got = vec![0; want.len()];
        device.read_at(0, &mut got).unwrap();
        assert!(got == want, "{words:?}");
        assert!(device.write_at(0, &[1]).is_err());
    }
}

#[test]
fn a_name_that_is_no_uri_of_a_server_says_what_is() {
    for name in [
        "nbd://host:99999/e",
        "nbd://host/e?socket=/s",
        "nbd://host/e?x-timeout=0",
        "nbd://host/e?tls-type=x509",
        "nbd://host/%zz",
        "nbd://host/%+1",
        "nbd://host/%f",
        "nbd+unix:///e",
        "nbd+unix://host/e?socket=/s",
        "nbds://host/e",
        "nbds+unix:///e?socket=/s",
        "nbd+unix:///disk@rot?socket=/s",
        "nbd://host/disk@rot",
    ] {
        let error = FileDevice::open(name, Access::ReadOnly, OpenOptions::default()).unwrap_err();
        assert!(error.to_string().contains("nbd://HOST[:PORT]/EXPORT"), "{name}: {error}");
    }
    // What the export's name has in it is not the partition's.
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a@2 b");
    let Some(_server) = nbdkit(&socket, &["memory", "1M"]) else { return };
    let name = uri(&socket).display().to_string().replace('@', "%40").replace(' ', "%20");
    FileDevice::open(&name, Access::ReadWrite, OpenOptions::default()).unwrap();
    let error = FileDevice::open(format!("{name}@2"), Access::ReadWrite, OpenOptions::default());
    assert!(error.unwrap_err().to_string().contains("no partition table"));
}
