//! Compares the reader with Go's `archive/tar` and with GNU tar, over archives whose headers are
//! unusual, contradictory or damaged. What both accept must have the same entries. A reader that
//! refuses an archive is never wrong.
//!
//! `tar -t` is no judge: it reads some archives otherwise than `tar -x`.

#[path = "../../tests/build/archive/mod.rs"]
mod archive;

use super::{Body, Dialect, Reader};
use crate::entry::Kind;
use archive::{entry, file, header, pax, seal};
use fastrand::Rng;
use lanefs_ondisk::FileType;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The contents of files up to this size are compared too.
const MOST_COMPARED: u64 = 1 << 20;

const SIZES: [u64; 7] = [0, 1, 3, 511, 512, 513, 1024];

/// Reads archives of a length and bytes, and writes a line for each entry.
const GO: &str = r#"package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var size uint32
	for binary.Read(in, binary.LittleEndian, &size) == nil {
		archive := make([]byte, size)
		if _, err := io.ReadFull(in, archive); err != nil {
			panic(err)
		}
		fmt.Fprintln(out, list(out, tar.NewReader(bytes.NewReader(archive))))
	}
}

func list(out io.Writer, archive *tar.Reader) string {
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return "end"
		}
		if err != nil {
			return "error"
		}
		size, sum, link, kind := int64(0), uint32(0), "", header.Typeflag
		switch kind {
		case '0', '7', 'S':
			kind, size = '0', header.Size
			if size <= 1<<20 {
				data, err := io.ReadAll(archive)
				if err != nil {
					return "error"
				}
				for at, b := range data {
					sum += uint32(b) * uint32(at+1)
				}
			}
		case '1', '2':
			link = header.Linkname
		case '3', '4', '5', '6':
		case 'g':
			continue
		default:
			return "error"
		}
		fmt.Fprintf(out, "%c %d %d %x %x\n", kind, size, sum, header.Name, link)
	}
}
"#;

/// What a reader finds: a line for each entry; `None` if it refuses the archive.
type Found = Option<Vec<String>>;

fn line(kind: char, size: u64, sum: u32, name: &[u8], link: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{kind} {size} {sum} {} {}", hex(name), hex(link))
}

fn by_lanefs(bytes: &[u8], dialect: Dialect) -> Found {
    let mut reader = Reader::new(bytes, dialect);
    let mut lines = Vec::new();
    while let Some(item) = reader.next().ok()? {
        let (kind, size, link) = match item.body {
            Body::Directory => ('5', 0, Vec::new()),
            Body::Link(target) => ('1', 0, target),
            Body::File(Kind::Symlink(target)) => ('2', 0, target.into()),
            Body::File(Kind::Device(FileType::CharDevice, ..)) => ('3', 0, Vec::new()),
            Body::File(Kind::Device(..)) => ('4', 0, Vec::new()),
            Body::File(Kind::Empty(_)) => ('6', 0, Vec::new()),
            Body::File(Kind::Regular(size)) => ('0', size, Vec::new()),
        };
        // Such names are refused when they are used.
        if item.path.contains(&0) || link.contains(&0) {
            return None;
        }
        let sum = if size <= MOST_COMPARED { sum(&mut reader)? } else { 0 };
        lines.push(line(kind, size, sum, &item.path, &link));
    }
    Some(lines)
}

fn sum(reader: &mut Reader<&[u8]>) -> Option<u32> {
    let mut sum = 0u32;
    while let Some((offset, len)) = reader.next_piece() {
        let mut data = vec![0; len as usize];
        reader.read(&mut data).ok()?;
        for (at, byte) in (offset as u32 + 1..).zip(data) {
            sum = sum.wrapping_add(u32::from(byte).wrapping_mul(at));
        }
    }
    Some(sum)
}

/// Builds the program of Go; `None` if this machine has no Go.
fn go(dir: &Path) -> Option<Command> {
    std::fs::write(dir.join("list.go"), GO).unwrap();
    let mut build = Command::new("go");
    build.args(["build", "-o", "list", "list.go"]).current_dir(dir);
    let output = build.env("GO111MODULE", "off").output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(Command::new(dir.join("list")))
}

fn by_go(program: &mut Command, archives: &[Vec<u8>]) -> Vec<Found> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let all: Vec<u8> = archives
        .iter()
        .flat_map(|bytes| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat())
        .collect();
    let writer = std::thread::spawn(move || input.write_all(&all));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let (mut found, mut lines) = (Vec::new(), Vec::new());
    for text in String::from_utf8(output.stdout).unwrap().lines() {
        match text {
            "end" => found.push(Some(std::mem::take(&mut lines))),
            "error" => {
                lines.clear();
                found.push(None);
            }
            entry => lines.push(entry.to_owned()),
        }
    }
    found
}

/// Unpacks an archive with GNU tar, which tells each entry. It tells no contents.
fn by_gnu_tar(dir: &Path, bytes: &[u8]) -> Found {
    let (archive, place) = (dir.join("a.tar"), dir.join("unpacked"));
    std::fs::write(&archive, bytes).unwrap();
    std::fs::create_dir(&place).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-xvv", "--numeric-owner", "--quoting-style=c", "-f"]).arg(archive);
    let output = tar.arg("-C").arg(&place).env("LC_ALL", "C").output().unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let entries = text.lines().filter(|line| !line.contains(" Creating directory: "));
    // A volume label is not unpacked.
    let entries = entries.filter(|line| !line.starts_with('V'));
    output.status.success().then(|| entries.map(of_gnu_tar).collect())?
}

/// Parses a line such as `-rw-r--r-- 0/0 5 1970-01-01 00:00 "f"`.
fn of_gnu_tar(text: &str) -> Option<String> {
    let kind = match text.chars().next()? {
        '-' | 'C' => '0',
        'd' => '5',
        'h' => '1',
        'l' => '2',
        'c' => '3',
        'b' => '4',
        'p' => '6',
        _ => return None,
    };
    let size = text.split_whitespace().nth(2)?.parse().unwrap_or(0);
    let mut quoted = text.split_once('"')?.1;
    let name = unquoted(&mut quoted);
    // GNU tar makes a directory of a contiguous file with such a name, but shows it as a file.
    let kind = if text.starts_with('C') && name.ends_with(b"/") { '5' } else { kind };
    let size = if kind == '0' { size } else { 0 };
    let link = match quoted.split_once('"') {
        Some((_, mut target)) => unquoted(&mut target),
        None => Vec::new(),
    };
    Some(line(kind, size, 0, &name, &link))
}

/// Decodes a string of C up to its end, after which `text` then begins.
fn unquoted(text: &mut &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                *text = &text[at + 1..];
                break;
            }
            '\\' => match letters.next().unwrap().1 {
                digit @ '0'..='7' => {
                    let digits = [digit, letters.next().unwrap().1, letters.next().unwrap().1];
                    let digits: String = digits.iter().collect();
                    decoded.push(u8::from_str_radix(&digits, 8).unwrap());
                }
                'a' => decoded.push(7),
                'b' => decoded.push(8),
                't' => decoded.push(9),
                'n' => decoded.push(10),
                'v' => decoded.push(11),
                'f' => decoded.push(12),
                'r' => decoded.push(13),
                other => decoded.push(other as u8),
            },
            letter => decoded.push(letter as u8),
        }
    }
    decoded
}

/// Draws an archive.
fn draw(random: &mut Rng) -> Vec<u8> {
    let mut bytes = file("n0", b"zero");
    for n in 1..random.usize(2..6) {
        for _ in 0..random.usize(..6).saturating_sub(3) {
            bytes.extend(extension(random, n));
        }
        bytes.extend(if random.u8(..) < 30 { sparse(random, n) } else { plain(random, n) });
    }
    bytes.resize(bytes.len() + 1024, 0);
    if random.u8(..3) == 0 {
        damage(random, &mut bytes);
    }
    if random.u8(..) < 5 {
        bytes.truncate(random.usize(..bytes.len()));
    }
    bytes
}

/// Changes bytes of headers to those at which parsers differ.
fn damage(random: &mut Rng, bytes: &mut [u8]) {
    let is_header = |at: &usize| bytes[at + 257..].starts_with(b"ustar");
    let headers: Vec<usize> = (0..bytes.len()).step_by(512).filter(is_header).collect();
    for _ in 0..random.usize(1..4) {
        let start = headers[random.usize(..headers.len())];
        let field = [0..2, 100..116, 124..136, 156..158, 257..265, 329..357, 386..410, 482..512];
        let field = field[random.usize(..field.len())].clone();
        let odd = [0, b' ', b'0', b'7', b'9', b'/', b'-', 0x80, 0xff, random.u8(..)];
        bytes[start + random.usize(field)] = odd[random.usize(..odd.len())];
        if random.u8(..) > 20 {
            seal(&mut bytes[start..start + 512]);
        }
    }
}

fn choose<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

/// Draws a header that describes the next entry, or a volume label.
fn extension(random: &mut Rng, n: usize) -> Vec<u8> {
    let kind = *b"xxxxxxxxggXLKV".get(random.usize(..14)).unwrap();
    match kind {
        b'L' | b'K' => {
            let name = [format!("l{n}\0"), "n0\0".into(), "\0".into()];
            let name = name[random.usize(..3)].as_bytes();
            entry(header(b"long", kind, name.len() as u64, b""), name)
        }
        b'V' => {
            let data = data(random);
            entry(header(b"label", kind, data.len() as u64, b""), &data)
        }
        _ => {
            let name = format!("p{n}");
            // Each key comes once, because of two GNU tar takes the first in some headers.
            let records: BTreeMap<_, _> =
                (0..random.usize(1..4)).map(|_| record(random, &name)).collect();
            let mut bytes = pax(&records.into_iter().collect::<Vec<_>>());
            bytes[156] = kind;
            seal(&mut bytes[..512]);
            bytes
        }
    }
}

fn record<'a>(random: &mut Rng, name: &'a str) -> (&'a str, &'a str) {
    let keys = [
        "path",
        "path",
        "path",
        "linkpath",
        "size",
        "size",
        "comment",
        "uid",
        "mtime",
        "name",
        "realsize",
        "size of sparse",
        "map",
        "numblocks",
        "major",
        "minor",
        "offset",
    ];
    let size = choose(random, &["0", "1", "3", "512", "513", "1000"]);
    match choose(random, &keys) {
        // No name is empty, because only GNU tar takes the empty value for a name.
        "path" => ("path", choose(random, &[name, name, name, "d/"])),
        "linkpath" => ("linkpath", choose(random, &["n0", "n1"])),
        "size" => ("size", size),
        "uid" => ("uid", choose(random, &["7", "", "4294967295"])),
        "mtime" => ("mtime", choose(random, &["1.5", "", "-1"])),
        "name" => ("GNU.sparse.name", name),
        "realsize" => ("GNU.sparse.realsize", size),
        "size of sparse" => ("GNU.sparse.size", size),
        "map" => ("GNU.sparse.map", choose(random, &["0,3", "0,1,2,2", "3,0", ""])),
        "numblocks" => ("GNU.sparse.numblocks", choose(random, &["0", "1", "2"])),
        "major" => ("GNU.sparse.major", choose(random, &["0", "1", "2"])),
        "minor" => ("GNU.sparse.minor", choose(random, &["0", "1"])),
        "offset" => ("GNU.sparse.offset", size),
        _ => ("comment", "c"),
    }
}

/// Draws data, some of which are headers of entries that are not there.
fn data(random: &mut Rng) -> Vec<u8> {
    match random.bool() {
        true => file("hidden", b""),
        false => vec![b'x'; SIZES[random.usize(..SIZES.len())] as usize],
    }
}

fn plain(random: &mut Rng, n: usize) -> Vec<u8> {
    let kind = *b"0000\x00122334455667D".get(random.usize(..18)).unwrap();
    let end = if kind == b'5' || random.u8(..) < 40 { "/" } else { "" };
    let name = format!("n{n}{end}");
    let link: &[u8] = if matches!(kind, b'1' | b'2') { b"n0" } else { b"" };
    let data = data(random);
    let mut bytes = header(name.as_bytes(), kind, data.len() as u64, link);
    format(random, &mut bytes);
    match kind {
        b'1'..=b'6' if random.u8(..) < 200 => bytes,
        _ => entry(bytes, &data),
    }
}

/// Changes a header to one of another format.
fn format(random: &mut Rng, header: &mut [u8]) {
    match random.u8(..8) {
        0 => header[257..265].copy_from_slice(b"ustar  \0"),
        1 => header[257..265].fill(0),
        2 => header[508..512].copy_from_slice(b"tar\0"),
        _ => {}
    }
    match random.u8(..12) {
        0 => header[345..349].copy_from_slice(b"pre\0"),
        1 => header[345..349].copy_from_slice(b"17 7"),
        2 => header[345..499].fill(b'p'),
        _ => {}
    }
    seal(header);
}

/// Draws a sparse file in one of the forms of GNU tar. It has three bytes at offset 1.
fn sparse(random: &mut Rng, n: usize) -> Vec<u8> {
    let name = format!("s{n}");
    let records = |records: &[(&str, &str)], data: &[u8]| {
        let name = [("GNU.sparse.name", name.as_str())];
        let entry = entry(header(b"as stored", b'0', data.len() as u64, b""), data);
        [pax(&[&name, records].concat()), entry].concat()
    };
    match random.u8(..4) {
        0 => {
            let mut bytes = header(name.as_bytes(), b'S', 3, b"");
            bytes[257..265].copy_from_slice(b"ustar  \0");
            bytes[386..397].copy_from_slice(b"00000000001");
            bytes[398..409].copy_from_slice(b"00000000003");
            bytes[483..494].copy_from_slice(b"00000001000");
            seal(&mut bytes);
            entry(bytes, b"abc")
        }
        1 => {
            let of = |key| ("GNU.sparse.numbytes", key);
            let map = [("GNU.sparse.size", "600"), ("GNU.sparse.numblocks", "1")];
            let piece = [("GNU.sparse.offset", "1"), of("3")];
            records(&[map, piece].concat(), b"abc")
        }
        2 => {
            let map = [("GNU.sparse.map", "1,3"), ("GNU.sparse.numblocks", "1")];
            records(&[&map[..], &[("GNU.sparse.size", "600")]].concat(), b"abc")
        }
        _ => {
            let mut data = b"1\n1\n3\n".to_vec();
            data.resize(512, 0);
            data.extend(b"abc");
            let version = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")];
            records(&[&version[..], &[("GNU.sparse.realsize", "600")]].concat(), &data)
        }
    }
}

/// Calls `judge` with the archives of a series of seeds; the last seed is told. If `LANEFS_SECONDS`
/// is set, continues for that time.
fn series(count: u64, mut judge: impl FnMut(&[u64], &[Vec<u8>])) {
    let named = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = named("LANEFS_SEED") {
        return judge(&[seed], &[draw(&mut Rng::with_seed(seed))]);
    }
    let until = Instant::now() + Duration::from_secs(named("LANEFS_SECONDS").unwrap_or(0));
    let mut first = named("LANEFS_FIRST_SEED").unwrap_or(1);
    loop {
        let seeds: Vec<u64> = (first..).take(count as usize).collect();
        println!("seeds {first} to {}", first + count - 1);
        let archives = seeds.iter().map(|seed| draw(&mut Rng::with_seed(*seed)));
        judge(&seeds, &archives.collect::<Vec<_>>());
        first += count;
        if Instant::now() >= until {
            break;
        }
    }
}

/// Compares what the two readers found. Of a series, both must accept a share, so that the
/// comparison has a meaning.
fn compare(judge: &str, seeds: &[u64], ours: &[Found], theirs: &[Found]) {
    assert_eq!(ours.len(), theirs.len());
    let mut both = 0;
    let mut wrong = Vec::new();
    for ((seed, ours), theirs) in seeds.iter().zip(ours).zip(theirs) {
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        both += 1;
        if ours != theirs {
            wrong.push(format!("seed {seed}: {ours:#?}\n{judge}: {theirs:#?}"));
        }
    }
    let one = |found: &[Found]| found.iter().flatten().count();
    let (ours, theirs) = (one(ours), one(theirs));
    println!("{judge} accepts {theirs}, Lanefs {ours}, both {both} of {}", seeds.len());
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(3)].join("\n")
    );
    assert!(seeds.len() < 50 || both * 4 > seeds.len(), "too few archives are accepted");
}

#[test]
fn layers_have_the_entries_that_go_finds() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(mut go) = go(dir.path()) else {
        println!("skipped: archives against archive/tar: go is not installed");
        return;
    };
    series(2000, |seeds, archives| {
        let ours: Vec<Found> = archives.iter().map(|bytes| by_lanefs(bytes, Dialect::Go)).collect();
        compare("Go", seeds, &ours, &by_go(&mut go, archives));
    });
}

#[test]
fn plain_archives_have_the_entries_that_gnu_tar_finds() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let without_sum = |line: String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words[2] = "0";
        words.join(" ")
    };
    series(80, |seeds, archives| {
        let ours = archives.iter().map(|bytes| by_lanefs(bytes, Dialect::Gnu));
        let ours: Vec<Found> =
            ours.map(|found| Some(found?.into_iter().map(without_sum).collect())).collect();
        let theirs: Vec<Found> =
            archives.iter().map(|bytes| by_gnu_tar(dir.path(), bytes)).collect();
        compare("GNU tar", seeds, &ours, &theirs);
    });
}
