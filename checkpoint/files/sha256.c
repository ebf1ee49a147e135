/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* SHA-256 (FIPS 180-4). No library that this one needs has it. One that has, libcrypto or nettle, would be a dependency
 * of every wheel and static build for these lines, which tests compare with Python's hashlib. */
#include "files/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/text.h"

enum { BLOCK = 64, LENGTH_AT = 56 };

/* Fractions of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t read_big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Makes the 64 words of a block. */
static void expand(uint32_t *w, const unsigned char *block)
{
    for (int i = 0; i < 16; i++)
        w[i] = read_big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7];
        w[i] += (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

/* Adds a word. Round i finds variable n, of a to h, at place n - i: nothing moves. */
static inline void add_word(uint32_t *s, int i, uint32_t word)
{
    enum { A, B, C, D, E, F, G, H };
    const uint32_t a = s[(A - i) & 7], b = s[(B - i) & 7], c = s[(C - i) & 7], e = s[(E - i) & 7];
    const uint32_t choice = (e & s[(F - i) & 7]) ^ (~e & s[(G - i) & 7]), most = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t t = s[(H - i) & 7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + word;
    s[(D - i) & 7] += t;
    s[(H - i) & 7] = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + most;
}

static void add_block(uint32_t *state, const unsigned char *block)
{
    uint32_t w[64], s[8];
    expand(w, block);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i += 8)
        for (int k = 0; k < 8; k++)
            add_word(s, k, constants[i + k] + w[i + k]);
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

/* Adds the last bytes of `size`, fewer than a block, with what follows every text. */
static void add_last(uint32_t *state, const unsigned char *bytes, uint64_t size)
{
    unsigned char last[2 * BLOCK] = {0};
    const size_t left = size % BLOCK, padded = left < LENGTH_AT ? BLOCK : 2 * BLOCK;
    memcpy(last, bytes, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++)
        last[padded - 1 - (size_t)i] = (unsigned char)(size * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += BLOCK)
        add_block(state, last + at);
}

/* Reads until the chunk is full or the file ends. -1: failure. */
static ssize_t read_chunk(int fd, unsigned char *chunk, size_t size)
{
    size_t have = 0;
    while (have < size) {
        const ssize_t done = read(fd, chunk + have, size - have);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -1 : (ssize_t)have;
        have += (size_t)done;
    }
    return (ssize_t)have;
}

int sha256_file(const char *path, char text[SHA256_TEXT], struct fail *f)
{
    /* Fractions of the square roots of the first 8 primes. */
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    enum { CHUNK = 1 << 18 };
    OWNED_DESCRIPTOR const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    OWNED unsigned char *chunk = malloc(CHUNK);
    if (!chunk)
        return fail_system(f, "no memory for %s", path);
    uint64_t size = 0;
    ssize_t done = fd < 0 ? -1 : CHUNK;
    while (done == CHUNK) {
        done = read_chunk(fd, chunk, CHUNK);
        size += done < 0 ? 0 : (uint64_t)done;
        for (ssize_t at = 0; at + BLOCK <= done; at += BLOCK)
            add_block(state, chunk + at);
    }
    if (done < 0)
        return SYSTEM_FAILURE(f, "%s: cannot be read: %s", path, strerror(errno));
    add_last(state, chunk + done / BLOCK * BLOCK, size);
    for (size_t i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08" PRIx32, state[i]);
    return 0;
}
