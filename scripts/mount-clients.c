// A client for any mounted file system. Its threads repeat one operation.
//   mount-clients OPERATION THREADS SECONDS DIRECTORY
// OPERATION is open (open and close), create (create, close and unlink) or rename (to and fro).
// Each thread works in a separate directory. Prints how many operations per second all threads made
// together.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 };
static pthread_barrier_t ready;
static const char *operation, *root;
static double seconds;
static struct { pthread_t id; int number; long done; double took; } threads[MOST];

static void fail(const char *path) {
    fprintf(stderr, "mount-clients: %s: %s\n", path, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void make(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || close(fd)) fail(path);
}

static void *work(void *argument) {
    int me = *(int *)argument;
    char dir[4000], one[4096], two[4096];
    snprintf(dir, sizeof dir, "%s/%s-%d", root, operation, me);
    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(two, sizeof two, "%s/two", dir);
    if (mkdir(dir, 0755) && errno != EEXIST) fail(dir);
    int creates = !strcmp(operation, "create"), renames = !strcmp(operation, "rename");
    if (!creates) make(one);
    pthread_barrier_wait(&ready);
    double start = now(), end = start + seconds;
    long done = 0;
    while (now() < end) {
        if (renames) {
            if (rename(done % 2 ? two : one, done % 2 ? one : two)) fail(one);
        } else {
            int fd = open(one, creates ? O_RDWR | O_CREAT : O_RDONLY, 0644);
            if (fd < 0 || close(fd)) fail(one);
            if (creates && unlink(one)) fail(one);
        }
        done++;
    }
    threads[me].done = done;
    threads[me].took = now() - start;
    unlink(one);
    unlink(two);
    rmdir(dir);
    return NULL;
}

int main(int count, char **words) {
    int n = count == 5 ? atoi(words[2]) : 0;
    if (n < 1 || n > MOST) {
        fprintf(stderr, "mount-clients open|create|rename THREADS SECONDS DIRECTORY\n");
        return 2;
    }
    operation = words[1], seconds = atof(words[3]), root = words[4];
    pthread_barrier_init(&ready, NULL, n);
    for (int i = 0; i < n; i++) {
        threads[i].number = i;
        if (pthread_create(&threads[i].id, NULL, work, &threads[i].number)) fail("thread");
    }
    double rate = 0;
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i].id, NULL);
        rate += threads[i].done / threads[i].took;
    }
    printf("%.0f\n", rate);
    return 0;
}
