-- tables
CREATE TABLE IF NOT EXISTS ironcurtain_questions (
    id uuid PRIMARY KEY, home text NOT NULL, host text NOT NULL, digest text NOT NULL,
    request bytea NOT NULL, asked timestamptz NOT NULL, ends timestamptz,
    seen timestamptz NOT NULL DEFAULT now(), is_open boolean NOT NULL DEFAULT true);
CREATE INDEX IF NOT EXISTS ironcurtain_open
    ON ironcurtain_questions (home) WHERE is_open;
/* By its content: the same answer, sent twice, is one row, and no forged row can take the place of an
   answer that comes later. */
CREATE TABLE IF NOT EXISTS ironcurtain_answers (
    question uuid NOT NULL, hash text NOT NULL, body bytea NOT NULL, outcome text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (question, hash));
CREATE INDEX IF NOT EXISTS ironcurtain_waiting
    ON ironcurtain_answers (question) WHERE outcome IS NULL;
CREATE TABLE IF NOT EXISTS ironcurtain_logins (
    word text PRIMARY KEY, kind text NOT NULL, said jsonb NOT NULL,
    ends timestamptz NOT NULL)

-- forget
DELETE FROM ironcurtain_questions WHERE seen < now() - interval '30 days';
DELETE FROM ironcurtain_answers a WHERE at < now() - interval '30 days'
AND NOT EXISTS (SELECT FROM ironcurtain_questions q WHERE q.id = a.question)

-- ask
INSERT INTO ironcurtain_questions
(id, home, host, digest, request, asked, ends)
VALUES (CAST(:id AS uuid), :home, :host, encode(sha256(:request), 'hex'), :request, :asked,
    now() + CAST(:left AS double precision) * interval '1 second')
ON CONFLICT (id) DO UPDATE SET is_open = true, seen = now(), request = excluded.request,
digest = excluded.digest, ends = excluded.ends WHERE ironcurtain_questions.home = :home

-- beat
UPDATE ironcurtain_questions SET seen = now()
WHERE home = :home AND is_open RETURNING id::text

-- end
UPDATE ironcurtain_questions
SET is_open = false, request = '', seen = now()
WHERE home = :home AND id = ANY(CAST(:ids AS uuid[]))

-- outcome
SELECT outcome FROM ironcurtain_answers
WHERE question = CAST(:q AS uuid) AND hash = :hash

-- tell
UPDATE ironcurtain_answers SET outcome = :outcome,
body = CASE WHEN :outcome = 'counted' THEN body ELSE '' END
WHERE question = CAST(:q AS uuid) AND hash = :hash

-- answers
SELECT a.question::text AS question, a.hash, a.body
FROM ironcurtain_answers a JOIN ironcurtain_questions q ON q.id = a.question
WHERE q.home = :home AND q.is_open AND a.outcome IS NULL
AND octet_length(a.body) <= {answer} AND length(a.hash) <= 64
AND a.hash <> ALL(CAST(:known AS text[]))
AND a.question <> ALL(CAST(:full AS uuid[])) ORDER BY a.at LIMIT {at_once}

-- open
SELECT id FROM (
    SELECT id::text, asked, sum(octet_length(request)) OVER (ORDER BY asked, id) AS size
    FROM ironcurtain_questions WHERE is_open AND (ends IS NULL OR ends > now())
    AND octet_length(request) <= {request}) AS sized
WHERE size <= {size} ORDER BY asked, id LIMIT :most

-- requests
SELECT id::text AS id, left(host, 64) AS host, request,
CASE WHEN ends BETWEEN now() AND now() + interval '400 days'
    THEN CAST(extract(epoch FROM ends - now()) AS double precision) END AS "left"
FROM ironcurtain_questions WHERE id = ANY(CAST(:ids AS uuid[])) AND is_open
AND octet_length(request) <= {request}

-- home
SELECT home FROM ironcurtain_questions
WHERE id = CAST(:q AS uuid) AND is_open AND (ends IS NULL OR ends > now())
AND {waiting} > (SELECT count(*) FROM ironcurtain_answers
    WHERE question = CAST(:q AS uuid) AND outcome IS NULL)

-- answer
INSERT INTO ironcurtain_answers (question, hash, body)
VALUES (CAST(:q AS uuid), :hash, :body) ON CONFLICT DO NOTHING

-- notify
SELECT pg_notify(:channel, '')
