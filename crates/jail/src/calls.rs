//! The system calls that fail with EPERM in the jail. All others stay allowed: threads, the C
//! library and the kernel's versions need too many of them for a list of the allowed ones.

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, sock_filter,
};
use std::collections::BTreeMap;
use std::error::Error;

/// Numbers that libc lacks. New calls have the same number on all machines.
mod new {
    pub const PROCESS_MADVISE: i64 = 440;
    pub const QUOTACTL_FD: i64 = 443;
    pub const PROCESS_MRELEASE: i64 = 448;
    pub const FCHMODAT2: i64 = 452;
    pub const SETXATTRAT: i64 = 463;
    pub const REMOVEXATTRAT: i64 = 466;
    pub const OPEN_TREE_ATTR: i64 = 467;
    pub const FILE_SETATTR: i64 = 469;
}

/// Calls that no task needs.
const NEVER: &[i64] = &[
    // Other programs
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    new::PROCESS_MADVISE,
    new::PROCESS_MRELEASE,
    // Other users, and the machine
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_personality,
    libc::SYS_quotactl,
    new::QUOTACTL_FD,
    // Mounts and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    new::OPEN_TREE_ATTR,
    // Large parts of the kernel
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    // Attributes of files by path, which landlock does not restrain
    libc::SYS_fchmodat,
    new::FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    new::SETXATTRAT,
    new::REMOVEXATTRAT,
    new::FILE_SETATTR,
];

#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

const SOCKETS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];
const ATTRIBUTES: &[i64] =
    &[libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_fsetxattr, libc::SYS_fremovexattr];

/// x86-64 has every call a second time, for programs of x32, with this bit in its number.
const X32: u32 = 1 << 30;

/// `TIOCSTI` and `TIOCLINUX`, which type on the terminal.
const TYPE: [u64; 2] = [0x5412, 0x541c];

/// Installs the filter.
pub fn filter(sockets: bool, attributes: bool) -> Result<(), Box<dyn Error>> {
    let is = |argument, len, op, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, len, op, value)?])
    };
    let own = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let open = |allowed: bool, calls: &'static [i64]| if allowed { &[] } else { calls };
    let whole = [NEVER, OLD, open(sockets, SOCKETS), open(attributes, ATTRIBUTES)];
    rules.extend(whole.into_iter().flatten().map(|call| (*call, Vec::new())));
    // Signals to others; `abort` sends one to itself.
    rules.insert(libc::SYS_kill, vec![is(0, Dword, Ne, own)?]);
    rules.insert(libc::SYS_tgkill, vec![is(0, Dword, Ne, own)?]);
    // Limits of others
    rules.insert(libc::SYS_prlimit64, vec![is(0, Dword, Ne, 0)?]);
    // Without a path, the times are those of an open file.
    let times = if attributes { vec![is(1, Qword, Ne, 0)?] } else { Vec::new() };
    rules.insert(libc::SYS_utimensat, times);
    let typing = TYPE.map(|request| is(1, Dword, Eq, request));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    let machine = std::env::consts::ARCH.try_into()?;
    let errno = rustix::io::Errno::PERM.raw_os_error().cast_unsigned();
    let (allowed, refused) = (SeccompAction::Allow, SeccompAction::Errno(errno));
    let filter = SeccompFilter::new(rules, allowed, refused.clone(), machine)?;
    let step = |code: u32, jf, k| Ok(sock_filter { code: code.try_into()?, jt: 0, jf, k });
    let x32: Result<BpfProgram, Box<dyn Error>> = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the call's number
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, refused.into()),
    ]
    .into_iter()
    .collect();
    let program = [x32?, BpfProgram::try_from(filter)?].concat();
    Ok(seccompiler::apply_filter(&program)?)
}
