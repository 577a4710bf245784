//! Decides how many threads read requests, by the number of clients that send requests.

/// The number that is added to the score if a request's client is not that of the previous request.
/// If it is the same client, 1 is subtracted.
const STEP: u8 = 4;
/// From this score on, another reader is wanted. A shell that starts one program after the other
/// stays below this score. Each program sends more than four requests; its first request raises the
/// score, and its further requests lower the score by at least as much.
const SEVERAL: u8 = 32;
/// The highest score. Because of this limit, a reader whose requests all come from one client stops
/// reading after at most this many requests.
const MOST: u8 = 160;
/// The client of the requests must change this many times before a reader wants another reader.
/// Before this reader wants yet another one, the client must change this many times again.
const AGAIN: u8 = 8;

/// What a reader concludes from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The present number of readers is right.
    AsMany,
    /// Several clients send requests: another reader is wanted.
    OneMore,
    /// One client sends all requests: one reader fewer is wanted.
    OneFewer,
}

/// Judges whether the requests that a reader serves come from one client or from several. The score
/// rises with each request whose client is not that of the previous request, and falls with each
/// other request.
pub struct Clients {
    last: u32,
    score: u8,
    /// Counts the requests whose client differs from the client of the previous request. The count
    /// is at most `AGAIN`, and starts again at 0 when this reader has wanted another reader.
    others: u8,
}

impl Clients {
    /// Creates the score of a new reader. The score is high enough to keep the reader, since a
    /// thread is started only if it is wanted.
    pub fn new() -> Clients {
        Clients { last: 0, score: SEVERAL, others: 0 }
    }

    /// Records a request of the thread with the kernel's id `client`. Requests that the kernel
    /// sends for itself have client 0, and do not change the score.
    pub fn saw(&mut self, client: u32) -> Wanted {
        if client == 0 {
            return Wanted::AsMany;
        }
        let is_other = std::mem::replace(&mut self.last, client) != client;
        if !is_other {
            self.score = self.score.saturating_sub(1);
            return if self.score == 0 { Wanted::OneFewer } else { Wanted::AsMany };
        }
        self.score = (self.score + STEP).min(MOST);
        self.others = (self.others + 1).min(AGAIN);
        if self.score < SEVERAL || self.others < AGAIN {
            return Wanted::AsMany;
        }
        self.others = 0;
        Wanted::OneMore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(score: &mut Clients, requests: impl Iterator<Item = u32>) -> Vec<Wanted> {
        let all = requests.map(|client| score.saw(client));
        all.filter(|wanted| *wanted != Wanted::AsMany).collect()
    }

    #[test]
    fn one_client_wants_one_reader() {
        let mut clients = Clients::new();
        let all = wanted(&mut clients, std::iter::repeat_n(7, 100));
        assert!(all.contains(&Wanted::OneFewer), "{all:?}");
        let all = wanted(&mut clients, std::iter::repeat_n(7, 100));
        assert!(!all.contains(&Wanted::OneMore), "{all:?}");
    }

    #[test]
    fn two_clients_want_two_readers_also_if_their_requests_come_in_runs() {
        for run in 1..4 {
            let mut clients = Clients::new();
            let all = wanted(&mut clients, (0..100).map(|n| 1 + n / run % 2));
            assert!(all.contains(&Wanted::OneMore) && !all.contains(&Wanted::OneFewer), "{run}");
        }
    }

    #[test]
    fn programs_one_after_the_other_want_one_reader() {
        let mut clients = Clients::new();
        wanted(&mut clients, std::iter::repeat_n(7, 200));
        let all = wanted(&mut clients, (0..1000).map(|n| 1 + n / 8));
        assert!(!all.contains(&Wanted::OneMore), "{all:?}");
    }

    #[test]
    fn requests_of_the_kernel_do_not_change_the_number_of_readers() {
        let mut clients = Clients::new();
        assert_eq!(wanted(&mut clients, std::iter::repeat_n(0, 100)), []);
    }
}
