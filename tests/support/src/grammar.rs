//! The commands of a server, as `COMMAND DOCS` and `COMMAND INFO` tell of them, and random ones with arguments that fit.
//!
//! What the arguments are called says what is written for them, so a command that a server will have next year comes about as
//! well. Those that are refused by their own rules are many; who uses this counts how often each succeeded.

use crate::harness::{Client, Frame};
use crate::random::Random;

/// A command with keys, or a subcommand.
pub struct Command {
    /// In lower case, such as `xinfo|stream`.
    pub name: String,
    /// Such as `sorted-set`.
    pub group: String,
    /// As `COMMAND INFO` names them, such as `noscript`.
    pub flags: Vec<String>,
    arguments: Vec<Node>,
}

/// An argument, or several of which one can be chosen or which belong together.
struct Node {
    name: String,
    kind: String,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    multiple_token: bool,
    parts: Vec<Node>,
}

/// What the names of keys and other words are chosen from.
pub struct Vocabulary<'a> {
    /// Keys of the kind that a group of commands wants; there is one of each kind in an order of one's own.
    pub key_of_group: &'a dyn Fn(&mut Random, &str) -> String,
    /// What `RESTORE` may be given.
    pub dump: Vec<u8>,
}

/// All commands of the server that have keys; those of modules are not among them.
pub fn commands_with_keys(client: &mut Client) -> Vec<Command> {
    let mut found = Vec::new();
    for info in client.run("COMMAND").items() {
        gather(client, &info, &mut found);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// A command of the answer to `COMMAND`, or its subcommands.
fn gather(client: &mut Client, info: &Frame, found: &mut Vec<Command>) {
    let info = info.items();
    let name = info[0].text();
    let flags: Vec<_> = info[2].items().iter().map(Frame::text).collect();
    for sub in info.get(9).map(Frame::items).unwrap_or_default() {
        gather(client, &sub, found);
    }
    let has_keys = info[3].number() != 0
        || flags.iter().any(|flag| flag == "movablekeys")
        || info.get(8).is_some_and(|specs| !specs.items().is_empty());
    if !has_keys || flags.iter().any(|flag| flag == "module") {
        return;
    }
    let docs = client.run(["COMMAND", "DOCS", &name]).items();
    let docs = docs.get(1).unwrap_or_else(|| panic!("no docs of {name}"));
    let arguments = entry(docs, "arguments").unwrap_or(Frame::Array(Vec::new()));
    found.push(Command {
        group: entry(docs, "group").expect("a group").text(),
        arguments: arguments.items().iter().map(Node::read).collect(),
        name,
        flags,
    });
}

fn entry(map: &Frame, name: &str) -> Option<Frame> {
    let items = map.items();
    let pair = items.chunks(2).find(|pair| pair[0].text() == name)?;
    Some(pair[1].clone())
}

impl Node {
    fn read(frame: &Frame) -> Node {
        let text = |name| entry(frame, name).map(|value| value.text());
        let flags: Vec<_> = entry(frame, "flags")
            .map(|flags| flags.items().iter().map(Frame::text).collect())
            .unwrap_or_default();
        let has = |name: &str| flags.iter().any(|flag: &String| flag == name);
        let parts = entry(frame, "arguments").unwrap_or(Frame::Array(Vec::new()));
        Node {
            name: text("name").unwrap_or_default().to_ascii_lowercase(),
            kind: text("type").unwrap_or_default(),
            token: text("token"),
            optional: has("optional"),
            multiple: has("multiple"),
            multiple_token: has("multiple_token"),
            parts: parts.items().iter().map(Node::read).collect(),
        }
    }
}

impl Command {
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|has| has == flag)
    }

    /// One of its forms, with words at random.
    pub fn words(&self, random: &mut Random, vocabulary: &Vocabulary<'_>) -> Vec<Vec<u8>> {
        loop {
            let words = self.any_words(random, vocabulary);
            if !is_answered_twice(&words) {
                return words;
            }
        }
    }

    fn any_words(&self, random: &mut Random, vocabulary: &Vocabulary<'_>) -> Vec<Vec<u8>> {
        let name = self.name.to_ascii_uppercase();
        let mut writing = Writing {
            group: &self.group,
            random,
            vocabulary,
            words: name.split('|').map(|word| word.into()).collect(),
            announced: None,
            keys: 1,
        };
        writing.sequence(&self.arguments);
        writing.words
    }
}

/// Redis 8.6 replies with the old value and then with an error, if what stands behind `IFDEQ` is no digest.
fn is_answered_twice(words: &[Vec<u8>]) -> bool {
    let has = |word: &[u8]| words.iter().any(|one| one == word);
    words[0] == b"SET" && has(b"GET") && (has(b"IFDEQ") || has(b"IFDNE"))
}

/// A command that is being written.
struct Writing<'a, 'v> {
    group: &'a str,
    random: &'a mut Random,
    vocabulary: &'a Vocabulary<'v>,
    words: Vec<Vec<u8>>,
    /// How many keys or fields were said to follow.
    announced: Option<usize>,
    /// How many keys came last, for what goes with each of them.
    keys: usize,
}

impl Writing<'_, '_> {
    fn say(&mut self, word: impl AsRef<[u8]>) {
        self.words.push(word.as_ref().to_vec());
    }

    fn sequence(&mut self, nodes: &[Node]) {
        for node in nodes {
            if !node.optional || self.random.per_mille(300) {
                self.node(node);
            }
        }
    }

    fn node(&mut self, node: &Node) {
        let with_each_key = matches!(&*node.name, "weight" | "id" | "id-selector");
        let count = match node.multiple {
            false => 1,
            true if with_each_key => self.keys,
            true => match self.announced.take() {
                Some(count) => count,
                None => 1 + self.random.below(3),
            },
        };
        for nth in 0..count {
            if let Some(token) = &node.token
                && (nth == 0 || node.multiple_token)
            {
                self.say(token);
            }
            match &*node.kind {
                "pure-token" => {}
                "oneof" => {
                    let chosen = &node.parts[self.random.below(node.parts.len())];
                    self.node(chosen);
                }
                "block" => self.sequence(&node.parts),
                "key" => {
                    let key = (self.vocabulary.key_of_group)(self.random, self.group);
                    self.say(key);
                }
                kind => self.word(&node.name, kind),
            }
        }
        if node.kind == "key" {
            self.keys = count;
        }
    }

    /// A word for what is no key.
    fn word(&mut self, name: &str, kind: &str) {
        let mut pick = |words: &[&str]| self.random.pick(words).to_owned();
        let word = match (name, kind) {
            ("numkeys" | "numfields" | "num-fields", _) => {
                let count = 1 + self.random.below(3);
                self.announced = Some(count);
                return self.say(count.to_string());
            }
            ("ttl", _) => pick(&["0", "100000"]),
            ("serialized-value", _) => return self.say(self.vocabulary.dump.clone()),
            (_, "unix-time") if name.contains("milli") => "4102444800000".to_owned(),
            (_, "unix-time") => pick(&["4102444800", "4102444800000"]),
            ("timeout", _) => "0.01".to_owned(),
            ("min-idle-time", _) => pick(&["0", "100000"]),
            // What blocks is not to block for long; what lapses, not before it was looked at.
            ("milliseconds" | "ms", _) if self.group == "stream" => "1".to_owned(),
            ("milliseconds" | "ms", _) => "100000".to_owned(),
            ("longitude", _) => pick(&["13.361389", "15.087269"]),
            ("latitude", _) => pick(&["38.115556", "37.502669"]),
            ("radius" | "width" | "height", _) => "200".to_owned(),
            ("bit", _) => pick(&["0", "1"]),
            ("encoding", _) => pick(&["u8", "i5"]),
            ("cursor", _) => "0".to_owned(),
            ("destination-db" | "db", _) => "1".to_owned(),
            ("group" | "groupname", _) => pick(&["workers", "workers", "others"]),
            ("consumer" | "consumername", _) => pick(&["w1", "w2"]),
            ("field" | "fields", _) => pick(&["f1", "f2", "n"]),
            ("member" | "member1" | "member2" | "element" | "pivot", _) => {
                pick(&["a", "b", "c", "7"])
            }
            ("count", _) => pick(&["1", "2"]),
            ("operation", _) => pick(&["AND", "NOT"]),
            ("pattern", _) => pick(&["*", "*1", "#"]),
            ("id" | "lastid" | "last-id", _) if self.group == "stream" => {
                pick(&["1-1", "2-1", "0", "99-1", "$", ">"])
            }
            ("max-deleted-id" | "max-deleted-entry-id", _) => "1-1".to_owned(),
            ("start" | "stop" | "end" | "min" | "max", _) => match self.group {
                "sorted-set" => pick(&["0", "1", "5", "(1", "-inf", "+inf", "-", "+", "[a", "[c"]),
                "stream" => pick(&["-", "+", "1-1", "2-1"]),
                _ => pick(&["0", "1", "-1", "3"]),
            },
            (_, "integer") => pick(&["0", "1", "2", "-1", "100"]),
            (_, "double") => pick(&["1.5", "2", "-3"]),
            _ => pick(&["v", "w", "7", "2.5", "1-1", "u8", "[a", "0"]),
        };
        self.say(word);
    }
}
