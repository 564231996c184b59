//! Sessions, one-time links, and counts of failed sign-ins. They are in memory: a restart signs all users out.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use railpost_api::{App, ClientAddress, Code, Problem, hash_of};
use railpost_engine::{Span, Timestamp};
use railpost_store::{ApiKey, Digest, Scope};
use railpost_wire::ApiKeyId;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use super::sign_in_trail::FailedSignIns;
use crate::limits::{
    LIVE_PAGES_MAX, SESSION_AGE_MAX, SESSION_IDLE_MAX, SESSIONS_MAX, SIGN_IN_FAILURES_MAX,
    SIGN_IN_FAILURES_REMEMBERED_MAX, SIGN_IN_LINK_TTL, SIGN_IN_LINKS_MAX, SIGN_IN_PREFIX_LEN,
    SIGN_IN_WINDOW,
};

/// What the dashboard remembers. Tokens are kept as hashes: what is in memory opens nothing, and the
/// time of a look-up says nothing about a token.
#[derive(Debug)]
pub(super) struct SessionStore {
    sessions: Mutex<FxHashMap<Digest, Session>>,
    links: Mutex<FxHashMap<Digest, Timestamp>>,
    failures: Mutex<HashMap<SignInAttempt, Failures>>,
    pub(super) failed_sign_ins: FailedSignIns,
    live_pages: Arc<AtomicUsize>,
    closing: watch::Sender<bool>,
}

impl Default for SessionStore {
    fn default() -> Self {
        Self {
            sessions: Mutex::default(),
            links: Mutex::default(),
            failures: Mutex::default(),
            failed_sign_ins: FailedSignIns::default(),
            live_pages: Arc::default(),
            closing: watch::Sender::new(false),
        }
    }
}

/// The session of a signed-in user.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) key: Arc<ApiKey>,
    /// Proves that a form is one of ours.
    pub(super) csrf: String,
    by_link: bool,
    began_at: Timestamp,
    seen_at: Timestamp,
    flash: Option<Flash>,
}

/// What a change wants to say on the page that follows it.
#[derive(Clone)]
pub(super) struct Flash {
    pub(super) text: String,
    /// Shown once, here, and nowhere again.
    pub(super) secret: Option<String>,
    /// How it can be undone.
    pub(super) undo: Option<Undo>,
    pub(super) is_problem: bool,
}

/// A form of one button that undoes a change.
#[derive(Clone)]
pub(super) struct Undo {
    pub(super) label: String,
    /// The path of the form.
    pub(super) action: String,
    pub(super) fields: Vec<(&'static str, String)>,
}

/// Who tries to sign in: an address, and how the key begins. Behind one proxy are many people, and one who
/// mistypes must not lock the others out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SignInAttempt {
    address: IpAddr,
    prefix: String,
}

impl SignInAttempt {
    pub(super) fn new(client: ClientAddress, key: &str) -> Self {
        Self { address: client.0, prefix: key.chars().take(SIGN_IN_PREFIX_LEN).collect() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    since: Timestamp,
}

/// A live page's place among those that may be open.
pub(super) struct LivePermit(Arc<AtomicUsize>);

impl Drop for LivePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionStore {
    /// Begins a session and answers its token.
    pub(super) fn begin(&self, app: &App, key: Arc<ApiKey>, by_link: bool) -> String {
        let (token, now) = (token(app), app.source.now());
        let session = Session {
            key,
            csrf: self::token(app),
            by_link,
            began_at: now,
            seen_at: now,
            flash: None,
        };
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| session.lasts(now));
        if sessions.len() >= SESSIONS_MAX {
            drop_least(&mut sessions, |session| session.seen_at);
        }
        sessions.insert(hash_of(&token), session);
        token
    }

    /// The session with this token, if it lasts and its key still opens something. A store that cannot say so just
    /// now ends no session.
    pub(super) async fn find(&self, app: &App, token: &str) -> Result<Option<Session>, Problem> {
        let (hash, now) = (hash_of(token), app.source.now());
        let session = lock(&self.sessions).get(&hash).filter(|session| session.lasts(now)).cloned();
        let Some(mut session) = session else { return Ok(None) };
        if !session.by_link {
            match app.keys.find_hashed(app, session.key.hash, None).await {
                Ok(key) => session.key = key,
                Err(problem) if problem.code == Code::Unauthorized => {
                    self.end(token);
                    return Ok(None);
                }
                Err(problem) => return Err(problem),
            }
        }
        if let Some(kept) = lock(&self.sessions).get_mut(&hash) {
            kept.seen_at = now;
        }
        Ok(Some(session))
    }

    /// Ends a session.
    pub(super) fn end(&self, token: &str) {
        lock(&self.sessions).remove(&hash_of(token));
    }

    /// Leaves a word for the next page of this session.
    pub(super) fn set_flash(&self, token: &str, flash: Flash) {
        if let Some(session) = lock(&self.sessions).get_mut(&hash_of(token)) {
            session.flash = Some(flash);
        }
    }

    /// The word that was left for this session. Taking it removes it.
    pub(super) fn take_flash(&self, token: &str) -> Option<Flash> {
        lock(&self.sessions).get_mut(&hash_of(token))?.flash.take()
    }

    /// A token that opens one session, for the user of the terminal.
    pub(super) fn make_link(&self, app: &App) -> String {
        let (token, now) = (token(app), app.source.now());
        let mut links = lock(&self.links);
        links.retain(|_, until| now < *until);
        if links.len() >= SIGN_IN_LINKS_MAX {
            drop_least(&mut links, |until| *until);
        }
        links.insert(hash_of(&token), now + SIGN_IN_LINK_TTL);
        token
    }

    /// Consumes a sign-in link, and returns the key it stands for if it was valid.
    pub(super) fn use_link(&self, app: &App, token: &str) -> Option<Arc<ApiKey>> {
        let now = app.source.now();
        lock(&self.links).remove(&hash_of(token)).filter(|until| now < *until)?;
        Some(Arc::new(ApiKey {
            id: ApiKeyId::generate(now.as_millis(), app.random()),
            tenant: None,
            name: "sign-in link".to_owned(),
            scope: Scope::Admin,
            hash: hash_of(token),
            created_at: now,
            expires_at: Some(now + SESSION_AGE_MAX),
            revoked_at: None,
            last_used_at: None,
        }))
    }

    /// How long a client must wait before it may try to sign in again, if it must.
    pub(super) fn sign_in_delay(&self, app: &App, who: &SignInAttempt) -> Option<Span> {
        let now = app.source.now();
        let failed = *lock(&self.failures).get(who)?;
        let waited = now.since(failed.since);
        (failed.count >= SIGN_IN_FAILURES_MAX && waited < SIGN_IN_WINDOW)
            .then(|| Span::from_millis(SIGN_IN_WINDOW.as_millis() - waited.as_millis()))
    }

    /// Remembers that a sign-in failed.
    pub(super) fn failed(&self, app: &App, who: SignInAttempt) {
        let now = app.source.now();
        let mut failures = lock(&self.failures);
        if failures.len() >= SIGN_IN_FAILURES_REMEMBERED_MAX {
            failures.retain(|_, failed| now.since(failed.since) < SIGN_IN_WINDOW);
        }
        if failures.len() >= SIGN_IN_FAILURES_REMEMBERED_MAX {
            drop_least(&mut failures, |failed| failed.since);
        }
        let failed = failures.entry(who).or_insert(Failures { count: 0, since: now });
        if now.since(failed.since) >= SIGN_IN_WINDOW {
            *failed = Failures { count: 0, since: now };
        }
        failed.count += 1;
    }

    /// A place for a live page, unless all are taken.
    pub(super) fn acquire_live_permit(&self) -> Option<LivePermit> {
        let place = LivePermit(self.live_pages.clone());
        (self.live_pages.fetch_add(1, Ordering::Relaxed) < LIVE_PAGES_MAX).then_some(place)
    }

    /// Ends what would never end by itself: the server is about to stop.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

impl Session {
    fn lasts(&self, now: Timestamp) -> bool {
        now.since(self.seen_at) < SESSION_IDLE_MAX && now.since(self.began_at) < SESSION_AGE_MAX
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("key", &self.key.id).finish_non_exhaustive()
    }
}

fn token(app: &App) -> String {
    URL_SAFE_NO_PAD.encode(app.random::<32>())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes room for one more.
fn drop_least<K: Hash + Eq + Clone, V, S: BuildHasher, T: Ord>(
    map: &mut HashMap<K, V, S>,
    by: impl Fn(&V) -> T,
) {
    let least = map.iter().min_by_key(|(_, value)| by(value)).map(|(key, _)| key.clone());
    if let Some(least) = least {
        map.remove(&least);
    }
}
