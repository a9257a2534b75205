//! The connections of a client: one, or in a cluster one for each master that it was referred to (P-CLUSTER-1).

use crate::address::{Address, Open};
use crate::core::{Ask, Bytes, Config, Referral, slot, words};
use crate::error::Error;
use crate::link::{Hop, Shared};
use crate::observer::Observer;
use crate::resp::Frame;
use crate::socket::{Place, Wire};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How often a request follows to another node (P-CLUSTER-3).
const REFERRALS: usize = 5;

/// What has no time to wait may be referred as often again once it has been at a node for so long.
const SETTLED: Duration = Duration::from_secs(1);

/// All connections of a client. When the last [`Cluster`] and guard is gone, it is closed.
pub struct Cluster {
    /// To the server of the builder.
    first: Arc<Shared>,
    address: Arc<Address>,
    config: Config,
    observer: Option<Arc<dyn Observer>>,
    map: Arc<Map>,
    /// The others, in the order of their numbers.
    others: Mutex<Vec<Arc<Shared>>>,
}

/// What the connections have in common: they must not keep each other.
#[derive(Default)]
struct Map(Mutex<Known>);

/// Who has which slots, as far as is known.
#[derive(Default)]
struct Known {
    /// By the last slot of each range: its first one, and where the master is.
    ranges: BTreeMap<u16, (u16, Place)>,
    /// What MOVED has said since.
    moved: HashMap<u16, Place>,
    /// All nodes, replicas too.
    places: Vec<Place>,
    /// Where each connection leads to, by its number. None is where the builder says.
    connections: Vec<Option<Place>>,
}

/// A range of slots, and who has it, the master first: with their ids.
struct Range {
    first: u16,
    last: u16,
    nodes: Vec<(Place, Bytes)>,
}

/// How one connection is opened.
struct Node {
    address: Arc<Address>,
    map: Arc<Map>,
    number: usize,
}

impl Cluster {
    pub fn new(
        address: Address,
        config: Config,
        observer: Option<Arc<dyn Observer>>,
    ) -> Arc<Cluster> {
        let address = Arc::new(address);
        let map = Arc::<Map>::default();
        map.known().connections.push(None);
        let opener = Node {
            address: address.clone(),
            map: map.clone(),
            number: 0,
        };
        Arc::new(Cluster {
            first: Shared::new(Arc::new(opener), config.clone(), observer.clone()),
            address,
            config,
            observer,
            map,
            others: Mutex::default(),
        })
    }

    /// The connection to the server of the builder.
    pub fn first(&self) -> &Arc<Shared> {
        &self.first
    }

    fn others(&self) -> MutexGuard<'_, Vec<Arc<Shared>>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which connection leads to this place, and is made if none does.
    fn at(&self, place: &Place) -> (usize, Arc<Shared>) {
        let number = self.map.known().connection_to(place);
        if number == 0 {
            return (0, self.first.clone());
        }
        let mut others = self.others();
        while others.len() < number {
            let opener = Node {
                address: self.address.clone(),
                map: self.map.clone(),
                number: others.len() + 1,
            };
            let config = Config {
                is_cluster: true,
                ..self.config.clone()
            };
            let made = Shared::new(Arc::new(opener), config, self.observer.clone());
            if self.first.is_closed() {
                made.begin_close();
            }
            others.push(made);
        }
        (number, others[number - 1].clone())
    }

    /// Whether nothing is held, waited for or on its way.
    pub fn is_idle(&self) -> bool {
        self.first.is_idle() && self.others().iter().all(|node| node.is_idle())
    }

    /// Ends everything, and waits until the servers have ended the sessions.
    pub async fn close(&self) {
        if self.first.is_of_parent() {
            return;
        }
        // Whoever makes another one from now on sees that the first is closed.
        self.first.begin_close();
        let others = self.others().clone();
        for node in &others {
            node.begin_close();
        }
        self.first.over().await;
        for node in others {
            node.over().await;
        }
    }
}

impl Map {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn owner(&self, slot: u16) -> Option<&Place> {
        let range = self.ranges.range(slot..).next();
        let owner = range.filter(|(_, (first, _))| *first <= slot);
        let moved = self.moved.get(&slot);
        moved.or_else(|| owner.map(|(_, (_, place))| place))
    }

    fn connection_to(&mut self, place: &Place) -> usize {
        let mut places = self.connections.iter();
        let number = places.position(|it| it.as_ref() == Some(place));
        number.unwrap_or_else(|| {
            self.connections.push(Some(place.clone()));
            self.connections.len() - 1
        })
    }

    fn learn(&mut self, ranges: Vec<Range>) {
        if ranges.is_empty() {
            return;
        }
        self.ranges.clear();
        self.moved.clear();
        self.places.clear();
        for Range { first, last, nodes } in ranges {
            if let Some((master, _)) = nodes.first() {
                self.ranges.insert(last, (first, master.clone()));
            }
            for (place, _) in nodes {
                if !self.places.contains(&place) {
                    self.places.push(place);
                }
            }
        }
    }

    /// The connection leads to this place now, and so do the slots of the place where it led before: a replica was promoted.
    fn connected(&mut self, number: usize, place: Place) {
        let former = self.connections[number].replace(place.clone());
        let Some(former) = former.filter(|former| *former != place) else {
            return;
        };
        let owners = self.ranges.values_mut().map(|(_, owner)| owner);
        for owner in owners.chain(self.moved.values_mut()) {
            if *owner == former {
                *owner = place.clone();
            }
        }
    }
}

impl Open for Node {
    fn open(&self, within: Duration, slot: Option<u16>) -> BoxFuture<'_, Result<Wire, Error>> {
        Box::pin(self.connect(within, slot))
    }
}

impl Node {
    async fn connect(&self, within: Duration, slot: Option<u16>) -> Result<Wire, Error> {
        let place = self.map.known().connections[self.number].clone();
        let Some(place) = place else {
            return self.meet(self.address.connect(within).await?).await;
        };
        let half = within / 2;
        let connecting = self.at(&place);
        let reached = timeout(half, connecting.connect(half)).await;
        match (reached.unwrap_or_else(|_| Err(Error::late())), slot) {
            (Ok(wire), _) => self.meet(wire).await,
            (Err(Error::Unreachable(why)), Some(slot)) => {
                match self.look_for(slot, &place, half).await {
                    Some(owner) => self.meet(self.at(&owner).connect(half).await?).await,
                    None => Err(Error::Unreachable(why)),
                }
            }
            // Nothing is wanted of a certain node.
            (Err(Error::Unreachable(_)), None) => {
                self.meet(self.address.connect(half).await?).await
            }
            (Err(error), _) => Err(error),
        }
    }

    fn at(&self, place: &Place) -> Address {
        self.address.elsewhere(place.clone())
    }

    /// Asks a node which one it is, and who has which slots. A user who may not ask goes by MOVED alone.
    async fn meet(&self, mut wire: Wire) -> Result<Wire, Error> {
        let Some(place) = wire.place.clone().filter(|_| wire.is_cluster) else {
            return Ok(wire);
        };
        let [id, slots] = wire
            .ask([words!["CLUSTER", "MYID"], words!["CLUSTER", "SLOTS"]])
            .await?;
        let ranges = ranges(&slots, &place.0);
        let mut nodes = ranges.iter().flat_map(|range| &range.nodes);
        let is_it = |(_, is): &&(Place, Bytes)| id.bytes() == Some(is);
        let own = nodes.find(is_it).map_or(place, |(place, _)| place.clone());
        let mut known = self.map.known();
        known.learn(ranges);
        known.connected(self.number, own);
        drop(known);
        Ok(wire)
    }

    /// Where the slot is now, as others say than the node that had it: after a failover a promoted replica (P-CLUSTER-6).
    async fn look_for(&self, slot: u16, former: &Place, within: Duration) -> Option<Place> {
        let places = self.map.known().places.clone();
        let others = places.iter().filter(|place| *place != former);
        let asked: Vec<_> = others
            .map(|place| self.at(place))
            .chain(self.address.each())
            .collect();
        let share = within / u32::try_from(asked.len()).unwrap_or(u32::MAX);
        for node in asked {
            let answer = timeout(share, async {
                let mut wire = node.connect_to_any().await?;
                let [slots] = wire.ask([words!["CLUSTER", "SLOTS"]]).await?;
                let (host, _) = wire.place.unwrap_or_default();
                Ok::<_, Error>(ranges(&slots, &host))
            });
            let Ok(Ok(ranges)) = answer.await else {
                continue;
            };
            let mut known = self.map.known();
            known.learn(ranges);
            if let Some(owner) = known.owner(slot).filter(|owner| *owner != former) {
                return Some(owner.clone());
            }
        }
        None
    }
}

/// What CLUSTER SLOTS says; nothing if it is refused. A node without a host is that of the one that answers.
fn ranges(slots: &Frame, host: &str) -> Vec<Range> {
    let slot = |frame: &Frame| u16::try_from(frame.number()?).ok();
    let node = |node: &Frame| {
        let [name, port, id] = [0, 1, 2].map(|at| node.items().get(at));
        let name = name.and_then(Frame::bytes).unwrap_or_default();
        let name = match name {
            b"" | b"?" => host.to_owned(),
            name => String::from_utf8(name.to_vec()).ok()?,
        };
        let id = id.and_then(Frame::bytes).unwrap_or_default().to_vec();
        Some(((name, slot(port?)?), id))
    };
    let range = |range: &Frame| match range.items() {
        [first, last, nodes @ ..] => Some(Range {
            first: slot(first)?,
            last: slot(last)?,
            nodes: nodes.iter().filter_map(node).collect(),
        }),
        _ => None,
    };
    slots.items().iter().filter_map(range).collect()
}

/// Where a request goes, and where it is referred to.
#[derive(Clone)]
pub struct Route {
    cluster: Arc<Cluster>,
    node: Arc<Shared>,
    number: usize,
    is_asking: bool,
    referrals: usize,
    began: Instant,
}

impl Route {
    /// To the node that has the slot of this key, as far as is known.
    pub fn of(cluster: &Arc<Cluster>, key: Option<&Bytes>) -> Route {
        let mut route = Route {
            node: cluster.first.clone(),
            cluster: cluster.clone(),
            number: 0,
            is_asking: false,
            referrals: 0,
            began: Instant::now(),
        };
        // In a forked child another thread may have locked the map at the fork (P-FORK-1).
        if let Some(key) = key.filter(|_| !route.node.is_of_parent()) {
            let owner = cluster.map.known().owner(slot(key)).cloned();
            if let Some(owner) = owner {
                (route.number, route.node) = cluster.at(&owner);
            }
        }
        route
    }

    pub fn node(&self) -> &Arc<Shared> {
        &self.node
    }

    /// Host and port of the node of a cluster.
    #[cfg(feature = "internals")]
    pub fn place(&self) -> Option<String> {
        let place = self.cluster.map.known().connections[self.number].clone();
        place.map(|(host, port)| format!("{host}:{port}"))
    }

    /// The request as it is made there, with what is left of its time.
    pub fn ask(&self, ask: &Ask) -> Ask {
        let left = |wait: Duration| match wait {
            Duration::ZERO => wait,
            wait => {
                let left = wait.saturating_sub(self.began.elapsed());
                left.max(Duration::from_millis(1))
            }
        };
        Ask {
            is_asking: self.is_asking,
            wait: match self.referrals {
                0 => ask.wait,
                _ => ask.wait.map(left),
            },
            ..ask.clone()
        }
    }

    pub fn hop(&self) -> Hop {
        Hop {
            began: self.began,
            may_follow: self.referrals < REFERRALS,
        }
    }

    /// The same for a watch or a candidate, which has no time to wait: from where it has settled it begins anew.
    pub fn follows_at_last(&mut self, error: &Error) -> bool {
        let arrived = std::mem::replace(&mut self.began, Instant::now());
        if arrived.elapsed() > SETTLED {
            self.referrals = 0;
        }
        self.follows(error)
    }

    /// Goes where this error refers to: MOVED is remembered (P-CLUSTER-3), ASK is not (P-CLUSTER-4).
    pub fn follows(&mut self, error: &Error) -> bool {
        let Error::Refused(error) = error else {
            return false;
        };
        let Some(referral) = Referral::of(error).filter(|_| self.referrals < REFERRALS) else {
            return false;
        };
        let mut known = self.cluster.map.known();
        let here = known.connections[self.number].clone();
        let host = match (referral.host, here) {
            (host, Some((here, _))) if host.is_empty() => here,
            (host, _) => host,
        };
        let place = (host, referral.port);
        if !referral.is_ask {
            known.moved.insert(referral.slot, place.clone());
        }
        drop(known);
        (self.number, self.node) = self.cluster.at(&place);
        self.is_asking = referral.is_ask;
        self.referrals += 1;
        true
    }
}

#[cfg(test)]
impl Route {
    /// One that was followed as often as it may be, long ago.
    pub fn worn_out(mut self) -> Route {
        self.referrals = REFERRALS;
        self.began -= SETTLED * 2;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        ("10.0.0.1".to_owned(), port)
    }

    fn range(first: u16, last: u16, ports: &[u16]) -> Range {
        let nodes = ports.iter().map(|port| (place(*port), Bytes::new()));
        let nodes = nodes.collect();
        Range { first, last, nodes }
    }

    #[test]
    fn a_slot_is_where_the_last_word_says() {
        let mut known = Known::default();
        known.connections.push(None);
        known.learn(vec![range(0, 99, &[1, 4]), range(200, 299, &[2])]);
        let owner = |known: &Known, slot| known.owner(slot).map(|(_, port)| *port);
        let owners = |known: &Known| [0, 99, 100, 200, 300].map(|slot| owner(known, slot));
        assert_eq!(owners(&known), [Some(1), Some(1), None, Some(2), None]);
        assert_eq!(known.places, [place(1), place(4), place(2)]);
        known.moved.insert(100, place(3));
        known.moved.insert(200, place(3));
        assert_eq!(owners(&known), [Some(1), Some(1), Some(3), Some(3), None]);
        // A replica was promoted.
        let number = known.connection_to(&place(1));
        known.connected(number, place(4));
        assert_eq!(owners(&known), [Some(4), Some(4), Some(3), Some(3), None]);
        assert_eq!(known.connection_to(&place(4)), number);
        assert_ne!(known.connection_to(&place(1)), number);
        // A user who may not ask learns nothing.
        known.learn(ranges(&Frame::Error("NOPERM x".to_owned()), "host"));
        assert_eq!(owner(&known, 0), Some(4));
    }

    #[test]
    fn nodes_without_a_host_are_at_that_of_the_one_that_answers() {
        let node = |host: Frame, port| Frame::Array(vec![host, Frame::Int(port)]);
        let text = |text: &str| Frame::Bytes(text.into());
        let hosts = [Frame::Null, text(""), text("?"), text("other")];
        let nodes = hosts.into_iter().map(|host| node(host, 7));
        let items = [Frame::Int(0), Frame::Int(16383)].into_iter().chain(nodes);
        let slots = Frame::Array(vec![Frame::Array(items.collect())]);
        let ranges = ranges(&slots, "host");
        let hosts = ranges[0].nodes.iter().map(|((host, _), _)| host.as_str());
        let hosts: Vec<_> = hosts.collect();
        assert_eq!(hosts, ["host", "host", "host", "other"]);
        assert_eq!((ranges[0].first, ranges[0].last), (0, 16383));
    }
}
