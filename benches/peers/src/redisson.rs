//! Redisson's locks, as its public description and scripts have them: a hash that expires, a script to take it, and
//! a channel on which a release is told. Each contender is a process of its own, with its own subscription.

use super::Contender;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tether_testing::resp::{Connection, encode};

pub const PLAIN: &str = "Redisson";
pub const FAIR: &str = "Redisson fair";
/// Its watchdog's time, in ms.
const LEASE_MS: &str = "30000";
/// For how long a fair waiter keeps its place when it is not heard of, in ms.
const PLACE_MS: &str = "300000";

/// KEYS: the lock. ARGV: lease, contender. Nothing, or for how long the lock is taken.
const TAKE: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS: the lock, its channel. ARGV: lease, contender.
const GIVE_BACK: &str = "\
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1";

/// Puts those out of the line who have not been heard of. KEYS: lock, line, times, channels. ARGV: lease,
/// contender, time to keep a place, now.
const TIDY: &str = "\
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  local limit = redis.call('zscore', KEYS[3], first)
  if limit == false or tonumber(limit) > tonumber(ARGV[4]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
";

const TAKE_FAIRLY: &str = "\
if redis.call('exists', KEYS[1]) == 0 and
    (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  local others = redis.call('zrange', KEYS[3], 0, -1)
  for i = 1, #others do redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), others[i]) end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
local limit = redis.call('zscore', KEYS[3], ARGV[2])
if limit ~= false then return limit - tonumber(ARGV[3]) - tonumber(ARGV[4]) end
local last = redis.call('lindex', KEYS[2], -1)
local left
if last ~= false and last ~= ARGV[2] then
  left = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
else
  left = redis.call('pttl', KEYS[1])
end
if redis.call('zadd', KEYS[3], left + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[2])
end
return left";

const GIVE_BACK_FAIRLY: &str = "\
if redis.call('exists', KEYS[1]) == 0 then
  local first = redis.call('lindex', KEYS[2], 0)
  if first ~= false then redis.call('publish', KEYS[4] .. ':' .. first, '0') end
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 0
end
redis.call('del', KEYS[1])
local first = redis.call('lindex', KEYS[2], 0)
if first ~= false then redis.call('publish', KEYS[4] .. ':' .. first, '0') end
return 1";

/// What both kinds have: one connection for commands, one to listen.
struct Client {
    commands: Connection,
    listening: Connection,
    take: String,
    give_back: String,
    name: String,
    channel: String,
    requests: u64,
}

impl Client {
    fn join(
        port: u16,
        take: &str,
        give_back: &str,
        number: usize,
        channel: String,
    ) -> io::Result<Client> {
        let mut commands = Connection::open(port)?;
        let mut listening = Connection::open(port)?;
        listening.run("HELLO 3");
        let mut load = |script: &str| {
            commands.send(&encode(["SCRIPT", "LOAD", script]));
            let reply = String::from_utf8_lossy(commands.reply()).into_owned();
            reply.lines().nth(1).unwrap_or_default().to_owned()
        };
        let (take, give_back) = (load(take), load(give_back));
        Ok(Client {
            commands,
            listening,
            take,
            give_back,
            name: format!("client:{number}"),
            channel,
            requests: 0,
        })
    }

    fn script(&mut self, words: &[&str]) -> Option<Duration> {
        self.requests += 1;
        self.commands.send(&encode(words));
        let reply = self.commands.reply();
        let left = std::str::from_utf8(reply.get(1..)?)
            .ok()?
            .trim()
            .parse::<i64>();
        // Nothing is `$-1`, so below 0 as well.
        let is_number = reply[0] == b':';
        let left_ms = left.ok().filter(|_| is_number)?;
        Some(Duration::from_millis(left_ms.max(1).unsigned_abs()))
    }

    /// Tries; if the lock is taken, listens, and tries again whenever something is told or the time is up.
    fn acquire(&mut self, mut attempt: impl FnMut(&mut Client) -> Option<Duration>) {
        if attempt(self).is_none() {
            return;
        }
        self.listen("SUBSCRIBE", b"subscribe");
        while let Some(left) = attempt(self) {
            self.listening.next_push(Some(left));
        }
        self.listen("UNSUBSCRIBE", b"unsubscribe");
    }

    fn listen(&mut self, verb: &str, confirmed: &[u8]) {
        self.requests += 1;
        self.listening.send(&encode([verb, &self.channel]));
        let is_confirmed =
            |push: Vec<u8>| push.windows(confirmed.len()).any(|part| part == confirmed);
        while !self.listening.next_push(None).is_some_and(is_confirmed) {}
    }
}

pub struct Plain {
    client: Client,
    lock: String,
}

impl Plain {
    pub fn join(port: u16, lock: &str, number: usize) -> io::Result<Plain> {
        let channel = format!("redisson_lock__channel:{{{lock}}}");
        let client = Client::join(port, TAKE, GIVE_BACK, number, channel)?;
        let lock = lock.to_owned();
        Ok(Plain { client, lock })
    }
}

impl Contender for Plain {
    fn acquire(&mut self) -> io::Result<()> {
        let lock = &self.lock;
        self.client.acquire(|client| {
            let (take, name) = (client.take.clone(), client.name.clone());
            client.script(&["EVALSHA", &take, "1", lock, LEASE_MS, &name])
        });
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let client = &mut self.client;
        let (give_back, name) = (client.give_back.clone(), client.name.clone());
        let channel = client.channel.clone();
        client.script(&[
            "EVALSHA", &give_back, "2", &self.lock, &channel, LEASE_MS, &name,
        ]);
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.client.requests
    }
}

pub struct Fair {
    client: Client,
    /// Lock, line, times, channels.
    keys: [String; 4],
}

impl Fair {
    pub fn join(port: u16, lock: &str, number: usize) -> io::Result<Fair> {
        let channels = format!("redisson_lock__channel:{{{lock}}}");
        let own = format!("{channels}:client:{number}");
        let (take, give_back) = (
            [TIDY, TAKE_FAIRLY].concat(),
            [TIDY, GIVE_BACK_FAIRLY].concat(),
        );
        Ok(Fair {
            client: Client::join(port, &take, &give_back, number, own)?,
            keys: [
                lock.to_owned(),
                format!("redisson_lock_queue:{{{lock}}}"),
                format!("redisson_lock_timeout:{{{lock}}}"),
                channels,
            ],
        })
    }

    fn script(client: &mut Client, script: &str, keys: &[String; 4]) -> Option<Duration> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (name, now) = (client.name.clone(), now.as_millis().to_string());
        let [lock, line, times, channels] = keys;
        let keys = [lock.as_str(), line, times, channels];
        let words = [
            &["EVALSHA", script, "4"][..],
            &keys,
            &[LEASE_MS, &name, PLACE_MS, &now],
        ];
        client.script(&words.concat())
    }
}

impl Contender for Fair {
    fn acquire(&mut self) -> io::Result<()> {
        let keys = &self.keys;
        self.client.acquire(|client| {
            let take = client.take.clone();
            Fair::script(client, &take, keys)
        });
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let give_back = self.client.give_back.clone();
        Fair::script(&mut self.client, &give_back, &self.keys);
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.client.requests
    }
}
