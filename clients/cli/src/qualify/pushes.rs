//! Pushes of each kind to clients in each state.

use super::Fault;
use super::client::{Client, Frame, same};
use super::server::Server;

/// With a version of RESP.
type Attempt = fn(&Server, u8) -> Result<(), Fault>;

/// What a client is doing while it is pushed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// In a command of the server's own.
    Blocked,
    /// In a queue of the module's.
    Waiting,
    Subscribed,
    /// In MULTI.
    Queueing,
    /// After CLIENT REPLY OFF.
    Silent,
}

const STATES: [(State, &str); 6] = [
    (State::Idle, "idle"),
    (State::Blocked, "blocked"),
    (State::Waiting, "waiting"),
    (State::Subscribed, "subscribed"),
    (State::Queueing, "in MULTI"),
    (State::Silent, "in CLIENT REPLY OFF"),
];

/// All of them, with so many changes of a watched key for each state.
pub fn try_all(server: &Server, changes: usize) -> Result<(), Fault> {
    for protocol in [2, 3] {
        for (state, name) in STATES {
            let stage = Stage::new(server, protocol, state);
            let tried = stage.and_then(|stage| stage.play(changes));
            tried.map_err(|fault| {
                fault.within(&format!("a client that is {name}, RESP{protocol}"))
            })?;
        }
        let rest: [(&str, Attempt); 4] = [
            ("a client whose command is executed", executing),
            ("a client that is killed", killed),
            ("a client that does not read", overrun),
            ("a flush", flushed),
        ];
        for (what, attempt) in rest {
            attempt(server, protocol)
                .map_err(|fault| fault.within(&format!("{what}, RESP{protocol}")))?;
        }
    }
    tracking(server).map_err(|fault| fault.within("CLIENT TRACKING"))
}

/// One client that is pushed to, and another that causes it.
struct Stage {
    state: State,
    /// Of its keys' names.
    prefix: String,
    subject: Client,
    other: Client,
}

impl Stage {
    fn new(server: &Server, protocol: u8, state: State) -> Result<Stage, Fault> {
        let mut stage = Stage {
            state,
            prefix: format!("{state:?}{protocol}:"),
            subject: server.connect(protocol)?,
            other: server.connect(3)?,
        };
        // `~` stands for the prefix.
        let user = stage.line("ACL SETUSER ~user on nopass allkeys allchannels +@all");
        stage.other.expect(&user, "OK")?;
        let user = stage.line("AUTH ~user any");
        stage.subject.expect(&user, "OK")?;
        for line in ["SETTP ~granted v", "SETTP ~refused v"] {
            let line = stage.line(line);
            stage.other.expect(&line, "1")?;
        }
        for key in ["handed", "taken", "waited"] {
            let line = stage.line(&format!("LOCK.ACQUIRE ~{key}"));
            stage.other.expect(&line, "TOKEN")?;
        }
        let name = stage.line("CLIENT SETNAME ~subject");
        stage.subject.expect(&name, "OK")?;
        for (line, reply) in [
            ("WATCHEX ~k", "NOEXIST"),
            // A page of none. In a cluster a prefix has a hash tag.
            ("WATCHTP {~}", ""),
            ("SETTP ~gone v NOTIFY", "1"),
            ("LOCK.ACQUIRE ~lost OWNER x NOTIFY", "TOKEN"),
            ("SETTP ~granted v WAIT 0 PUSH", "0"),
            ("LOCK.ACQUIRE ~handed OWNER y WAIT 0 PUSH", "nil"),
            ("SETTP ~refused v WAIT 0 PUSH", "0"),
            ("LOCK.ACQUIRE ~taken WAIT 20 PUSH", "nil"),
        ] {
            let line = stage.line(line);
            stage.subject.expect(&line, reply)?;
        }
        Ok(stage)
    }

    fn line(&self, line: &str) -> String {
        line.replace('~', &self.prefix)
    }

    fn play(mut self, changes: usize) -> Result<(), Fault> {
        self.describes()?;
        self.enter()?;
        self.stir(changes)?;
        let replies = self.leave()?;
        let prefix = self.prefix.clone();
        let wanted = |text: &str| text.replace('~', &prefix);
        let mut pushes: Vec<_> = (0..changes)
            .flat_map(|_| ["watchex ~k ADD", "watchex ~k DEL"])
            .map(wanted)
            .collect();
        pushes.extend(
            [
                "watchtp {~}one ADD TOKEN v",
                "watchtp {~}one DEL TOKEN released",
                "settp ~gone LOST deleted",
                "lock ~lost LOST deleted x",
                "settp ~granted TOKEN",
                "lock ~handed TOKEN y",
                "settp ~refused FAILED NOPERM",
                "lock ~taken TIMEOUT",
            ]
            .map(wanted),
        );
        self.receive(pushes, &replies)?;
        self.subject.is_quiet()
    }

    /// The server says whose connection holds something.
    fn describes(&mut self) -> Result<(), Fault> {
        let info = self.line("LOCK.INFO ~lost");
        let (said, name) = (self.other.run(&info)?, self.line("~subject"));
        match said.contains(&name) {
            true => Ok(()),
            false => Err(Fault::Found(format!(
                "{info} does not name the holder: {said}"
            ))),
        }
    }

    fn enter(&mut self) -> Result<(), Fault> {
        let id = self.subject.id;
        match self.state {
            State::Idle => Ok(()),
            State::Blocked => {
                self.send("BLPOP ~none 0")?;
                self.other.until_blocked(id)
            }
            State::Waiting => {
                self.send("LOCK.ACQUIRE ~waited WAIT 0")?;
                self.other.until_blocked(id)
            }
            State::Subscribed => {
                self.send("SUBSCRIBE ~news")?;
                self.subject.pass_by("subscribe ")
            }
            State::Queueing => {
                let set = self.line("SET ~own v");
                self.subject
                    .expect_all(&[("MULTI", "OK"), (&set, "QUEUED")])
            }
            State::Silent => {
                self.send("CLIENT REPLY OFF")?;
                self.send("SET ~mark here")?;
                let get = self.line("GET ~mark");
                self.other.until(&get, |value| value == "here")
            }
        }
    }

    fn send(&mut self, line: &str) -> Result<(), Fault> {
        let line = self.line(line);
        self.subject.send_all([line.as_str()])
    }

    /// Causes the pushes.
    fn stir(&mut self, changes: usize) -> Result<(), Fault> {
        let pair = ["SET ~k v", "DEL ~k"].map(|line| self.line(line));
        let changing = (0..changes).flat_map(|_| pair.iter().map(String::as_str));
        self.other.send_all(changing)?;
        for _ in 0..changes {
            let replies = [Frame::reply("OK"), Frame::reply("1")];
            self.other.expect_frames("SET and DEL", &replies)?;
        }
        for (line, reply) in [
            ("SETTP {~}one v", "1"),
            ("DELTP {~}one", "1"),
            ("DEL ~gone", "1"),
            ("DEL ~lost", "1"),
            ("DELTP ~granted", "1"),
            ("LOCK.RELEASE ~handed", "0"),
            ("ACL SETUSER ~user -settp", "OK"),
            ("DELTP ~refused", "1"),
        ] {
            let line = self.line(line);
            self.other.expect(&line, reply)?;
        }
        Ok(())
    }

    /// Ends the state, and says which replies the client gets by that.
    fn leave(&mut self) -> Result<Vec<String>, Fault> {
        let prefix = self.prefix.clone();
        let line = |text: &str| text.replace('~', &prefix);
        let (other, subject) = (&mut self.other, &mut self.subject);
        Ok(match self.state {
            State::Idle => Vec::new(),
            State::Blocked => {
                other.expect(&line("RPUSH ~none item"), "1")?;
                vec![line("~none item")]
            }
            State::Waiting => {
                other.expect(&line("LOCK.RELEASE ~waited"), "0")?;
                vec!["TOKEN".to_owned()]
            }
            State::Subscribed => {
                other.expect(&line("PUBLISH ~news item"), "1")?;
                subject.send(&["UNSUBSCRIBE"])?;
                vec![line("message ~news item"), line("unsubscribe ~news 0")]
            }
            State::Queueing => {
                subject.send(&["EXEC"])?;
                vec!["OK".to_owned()]
            }
            State::Silent => {
                subject.send(&["CLIENT", "REPLY", "ON"])?;
                vec!["OK".to_owned()]
            }
        })
    }

    /// Reads so many frames, and compares them: the replies in their order, the pushes of each key in theirs.
    fn receive(&mut self, mut pushes: Vec<String>, replies: &[String]) -> Result<(), Fault> {
        let (mut came, mut answered) = (Vec::<String>::new(), Vec::new());
        while came.len() < pushes.len() || answered.len() < replies.len() {
            let frame = self.subject.frame().map_err(|fault| {
                let mut missing = pushes.iter().filter(|push| !came.contains(push));
                let missing = missing.next().map_or("a reply", String::as_str);
                fault.within(&format!("{missing:?} is missing"))
            })?;
            match frame {
                // The server's own, in RESP3.
                Frame::Push(text)
                    if text.starts_with("message ") || text.starts_with("unsubscribe ") =>
                {
                    answered.push(text);
                }
                Frame::Push(text) => came.push(text),
                Frame::Reply(text) => answered.push(text),
            }
        }
        let key = |push: &String| push.split(' ').nth(1).map(str::to_owned);
        pushes.sort_by_key(key);
        came.sort_by_key(key);
        for (came, wanted) in came.iter().zip(&pushes) {
            same("a push", came, wanted)?;
        }
        same("pushes", &came.len(), &pushes.len())?;
        same("replies", &answered.as_slice(), &replies)
    }
}

/// Pushes that a client's own commands cause.
fn executing(server: &Server, protocol: u8) -> Result<(), Fault> {
    /// How often.
    const TIMES: usize = 20;
    let mut client = server.connect(protocol)?;
    client.expect("WATCHEX own", "NOEXIST")?;
    let (add, del) = (
        Frame::push("watchex own ADD"),
        Frame::push("watchex own DEL"),
    );
    for _ in 0..TIMES {
        // In front of the reply.
        client.expect("LOCK.ACQUIRE turn OWNER x", "TOKEN")?;
        client.expect("LOCK.ACQUIRE turn OWNER y WAIT 0 PUSH", "nil")?;
        client.send_all(["LOCK.RELEASE turn OWNER x"])?;
        let frames = [Frame::push("lock turn TOKEN y"), Frame::reply("0")];
        client.expect_frames("a grant in a release", &frames)?;
        client.expect("LOCK.RELEASE turn OWNER y", "0")?;
        // Behind it.
        client.send_all(["SET own v"])?;
        client.expect_frames("SET", &[Frame::reply("OK"), add.clone()])?;
        client.send_all(["DEL own"])?;
        client.expect_frames("DEL", &[Frame::reply("1"), del.clone()])?;
        let script = "redis.call('SET',KEYS[1],'v') return redis.call('DEL',KEYS[1])";
        client.send(&["EVAL", script, "1", "own"])?;
        client.expect_frames("EVAL", &[Frame::reply("1"), add.clone(), del.clone()])?;
        client.send_all(["MULTI", "SET own v", "DEL own", "EXEC"])?;
        let queued = Frame::reply("QUEUED");
        let frames = [
            Frame::reply("OK"),
            queued.clone(),
            queued,
            Frame::reply("OK 1"),
            add.clone(),
            del.clone(),
        ];
        client.expect_frames("EXEC", &frames)?;
        // Its own command takes nothing from it.
        client.expect_all(&[("SETTP mine v NOTIFY", "1"), ("DEL mine", "1")])?;
        client.is_quiet()?;
        // Without a reply.
        client.expect("LOCK.ACQUIRE turn OWNER x", "TOKEN")?;
        client.expect("LOCK.ACQUIRE turn OWNER y WAIT 0 PUSH", "nil")?;
        client.send_all(["CLIENT REPLY SKIP", "LOCK.RELEASE turn OWNER x"])?;
        client.expect_frames("CLIENT REPLY SKIP", &[Frame::push("lock turn TOKEN y")])?;
        client.expect("LOCK.RELEASE turn OWNER y", "0")?;
    }
    client.is_quiet()
}

/// Pushes to a connection that is closed, or about to be.
fn killed(server: &Server, protocol: u8) -> Result<(), Fault> {
    const STIRRED: &str = "DEL {dying}:lost {dying}:gone";
    let mut other = server.connect(3)?;
    // In a transaction the killed one is there until its end.
    let ways: [&[&str]; 4] = [
        &["CLIENT KILL ID ~", "SET {dying} v", STIRRED],
        &[
            "MULTI",
            "CLIENT KILL ID ~",
            "SET {dying} v",
            STIRRED,
            "EXEC",
        ],
        &[
            "MULTI",
            "SET {dying} v",
            "CLIENT KILL ID ~",
            "DEL {dying}",
            STIRRED,
            "EXEC",
        ],
        // By itself.
        &["SET {dying} v", STIRRED],
    ];
    for way in ways {
        let mut subject = server.connect(protocol)?;
        other.expect("LOCK.ACQUIRE {dying}:next", "TOKEN")?;
        subject.expect_all(&[
            ("WATCHEX {dying}", "NOEXIST"),
            ("LOCK.ACQUIRE {dying}:lost NOTIFY", "TOKEN"),
            ("SETTP {dying}:gone v NOTIFY", "1"),
            ("LOCK.ACQUIRE {dying}:next WAIT 0 PUSH", "nil"),
        ])?;
        let id = subject.id.to_string();
        let lines: Vec<_> = way.iter().map(|line| line.replace('~', &id)).collect();
        let is_own = !way.iter().any(|line| line.contains("KILL"));
        if is_own {
            subject.send_all(["MULTI", "DEL {dying}", "SET {dying} v", "EXEC", "QUIT"])?;
        }
        other.send_all(lines.iter().map(String::as_str))?;
        for _ in way {
            other.frame()?;
        }
        subject.until_closed()?;
        drop(subject);
        other.expect("LOCK.RELEASE {dying}:next", "0")?;
        other.run("DEL {dying}")?;
        other.until("EXISTS {dying}:lost {dying}:gone {dying}:next", |left| {
            left == "0"
        })?;
        other.is_quiet()?;
    }
    Ok(())
}

/// Pushes to a connection that is closed because it does not read.
fn overrun(server: &Server, protocol: u8) -> Result<(), Fault> {
    let (mut subject, mut other) = (server.connect(protocol)?, server.connect(3)?);
    let limit = "client-output-buffer-limit";
    other.call(&["CONFIG", "SET", limit, "normal 20000 0 0"])?;
    subject.expect("WATCHEX full", "NOEXIST")?;
    let script =
        "for i=1,2000 do redis.call('SET',KEYS[1],'v') redis.call('DEL',KEYS[1]) end return 1";
    other.call(&["EVAL", script, "1", "full"])?;
    // It was closed in the middle of the pushes, or when they had been sent together.
    other.until(&format!("CLIENT LIST ID {}", subject.id), |line| {
        line.is_empty()
    })?;
    subject.until_closed()?;
    other.call(&["CONFIG", "SET", limit, "normal 0 0 0"])?;
    other.is_quiet()
}

/// The end of all keys, which the server tells its own way to those that track some.
fn flushed(server: &Server, protocol: u8) -> Result<(), Fault> {
    let (mut subject, mut other) = (server.connect(protocol)?, server.connect(3)?);
    subject.send_all(["SET flushed v", "WATCHEX flushed", "FLUSHALL"])?;
    let replies = ["OK", "EXIST", "OK"].map(Frame::reply);
    subject.expect_frames("FLUSHALL by its own client", &replies)?;
    let gone = [Frame::push("watchex flushed DEL")];
    subject.expect_frames("FLUSHALL by its own client", &gone)?;
    subject.expect("LOCK.ACQUIRE flushed:lost NOTIFY", "TOKEN")?;
    other.expect_all(&[("SET flushed v", "OK"), ("FLUSHALL", "OK")])?;
    subject.expect_frames(
        "FLUSHALL by another client",
        &[Frame::push("watchex flushed ADD")],
    )?;
    let mut rest = [subject.frame()?, subject.frame()?];
    rest.sort_by_key(|frame| matches!(frame, Frame::Push(text) if text.starts_with("lock")));
    let wanted = ["watchex flushed DEL", "lock flushed:lost LOST flushed"].map(Frame::push);
    same("FLUSHALL by another client", &rest, &wanted)?;
    subject.is_quiet()
}

/// A client that is pushed to still tracks keys for itself.
fn tracking(server: &Server) -> Result<(), Fault> {
    let (mut subject, mut other) = (server.connect(3)?, server.connect(3)?);
    subject.expect_all(&[
        ("WATCHEX tracked", "NOEXIST"),
        ("CLIENT TRACKING ON", "OK"),
        ("GET cached", "nil"),
    ])?;
    other.expect("SET cached v", "OK")?;
    subject.expect_frames("an invalidation", &[Frame::push("invalidate cached")])?;
    subject.expect("CLIENT TRACKING OFF", "OK")?;
    other.expect_all(&[("SET cached w", "OK"), ("SET tracked v", "OK")])?;
    subject.expect_frames("a watch", &[Frame::push("watchex tracked ADD")])?;
    subject.is_quiet()
}
